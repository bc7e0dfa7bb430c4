"""Routes, outcomes and copies: what policies decide, carried through the service."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import httpx
import pytest

from btb.config import Config, GuardSettings
from btb.errors import ConfigError
from btb.service.decider import Decider
from btb.service.local import talk
from btb.service.service import Service
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from forecasting.forecaster import Forecaster
from policies import make_policy
from policies.base import ClusterView, Copy, Decision, Feedback, Policy

PROMPT = {"chain": [11, 12, 13, 14], "block_tokens": 512, "input_tokens": 2048}


class Copying:
    """Sends all to the first replica and has each prompt copied to the second."""

    horizons_s = (15.0,)

    def __init__(self) -> None:
        self.learnt: list[Feedback] = []

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        names = cluster.replicas
        prefix = Prefix(arrival.chain[-1], len(arrival.chain), arrival.input_tokens)
        copy = Copy(
            prefix, arrival.chain, names[0], names[1], 64, float("inf"), 2.5, 0.5, "for a test"
        )
        return Decision(tuple(names), (copy,), "first")

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        self.learnt.append(feedback)


class Failing:
    """Fails in the way that was asked for."""

    horizons_s = (15.0,)

    def __init__(self, answer: Decision | None) -> None:
        self.answer = answer

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        if self.answer is None:
            raise ZeroDivisionError("a bug in somebody's policy")
        return self.answer

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        raise ZeroDivisionError("another one")


def make_service(policy: Policy | None = None) -> Service:
    return Service(
        Config(guard=GuardSettings(mode="off")),
        policy or make_policy("least_load", seed=1),
        Forecaster({}, boundary_tokens=1024),
    )


def metric(text: str, name: str) -> float:
    """Return the value of one series in Prometheus' text format; 0 where there is none."""
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.rpartition(" ")[2])
    return 0.0


async def route(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/route", json=PROMPT | fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_route_ranks_replicas_and_counts_the_first_as_taken() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        first = await route(client, request_id="r1")
        assert first["request_id"] == "r1"
        assert {one["replica"] for one in first["replicas"]} == {"a", "b"}
        assert first["expected_ttft_s"] == pytest.approx(0.1490, abs=1e-4)
        assert first["reason"] == "fewest requests"
        assert first["copies"] == []
        assert [one["seen"] for one in first["forecasts"]] == [1]
        taken = first["replicas"][0]["replica"]
        second = await route(client)
        assert second["request_id"].startswith("btb-")
        assert second["request_id"].endswith("-2")
        assert second["replicas"][0]["replica"] != taken
        assert second["replicas"][1]["requests"] == 1
        assert 0.0 <= second["replicas"][1]["queue_s"] < 0.149
        shown = (await client.get(f"/v1/replicas/{taken}")).json()
        assert (shown["requests"], shown["routed"], shown["resident_blocks"]) == (1, 1, 4)

    talk(make_service(), steps, replicas="ab")


def test_without_a_forecast_asked_for_none_is_given() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        assert (await route(client, forecast=False))["forecasts"] == []

    talk(make_service(), steps, replicas="a")


def test_a_dry_run_counts_nothing() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        await client.post("/v1/arrivals", json=PROMPT)
        answer = await route(client, dry_run=True, request_id="dry")
        assert answer["dry_run"]
        assert answer["copies"] == []
        assert answer["forecasts"][0]["seen"] == 1
        assert answer["expected_ttft_s"] is None
        assert (await client.get("/v1/replicas/a")).json()["requests"] == 0
        outcome = await client.post("/v1/outcomes", json={"request_id": "dry", "ttft_s": 1})
        assert outcome.status_code == 404
        assert metric((await client.get("/metrics")).text, "btb_decisions_total") == 0.0

    talk(make_service(Copying()), steps, replicas="ab")


def test_an_outcome_frees_the_replica_and_is_learnt_from() -> None:
    policy = Copying()

    async def steps(client: httpx.AsyncClient) -> None:
        await route(client, request_id="r1")
        begun = {"request_id": "r1", "ttft_s": 0.25, "hit_tokens": 512, "finished": False}
        assert not (await client.post("/v1/outcomes", json=begun)).json()["released"]
        assert (await client.get("/v1/replicas/a")).json()["requests"] == 1
        assert (await client.post("/v1/outcomes", json={"request_id": "r1"})).json()["released"]
        assert (await client.get("/v1/replicas/a")).json()["requests"] == 0
        gone = await client.post("/v1/outcomes", json={"request_id": "r1"})
        assert gone.status_code == 404
        metrics = (await client.get("/metrics")).text
        assert metric(metrics, "btb_ttft_seconds_sum") == 0.25
        assert metric(metrics, 'btb_prompt_tokens_total{part="all"}') == 2048.0
        assert metric(metrics, 'btb_prompt_tokens_total{part="found"}') == 512.0
        assert metric(metrics, 'btb_released_requests_total{cause="finished"}') == 1.0

    talk(make_service(policy), steps, replicas="ab")
    assert policy.learnt == [Feedback("1", "a", 0.25, 512)]


def test_copies_are_ordered_once_and_resident_when_said_to_be_done() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        (copy,) = (await route(client))["copies"]
        assert copy == {
            "copy_id": "c1",
            "prefix": "0x000000000000000e",
            "blocks": 4,
            "tokens": 2048,
            "source": "a",
            "target": "b",
            "size_bytes": 64,
            "deadline_s": None,
            "value_s": 2.5,
            "cost_s": 0.5,
            "reason": "for a test",
        }
        assert (await route(client))["copies"] == []
        done = {"copies_done": ["c1", "c9"]}
        answer = await client.post("/v1/outcomes", json=done)
        assert answer.json() == {"released": False, "copies_done": 1, "unknown_copies": ["c9"]}
        ranked = (await route(client))["replicas"]
        assert {one["replica"]: one["resident_blocks"] for one in ranked}["b"] == 4
        metrics = (await client.get("/metrics")).text
        assert metric(metrics, 'btb_copies_total{state="ordered"}') == 2.0
        assert metric(metrics, 'btb_copies_bytes_total{state="done"}') == 64.0

    talk(make_service(Copying()), steps, replicas="ab")


def test_a_replica_removed_with_requests_under_way_is_not_missed() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        await route(client, request_id="r1")
        await client.delete("/v1/replicas/a")
        assert (await client.post("/v1/route", json=PROMPT)).status_code == 503
        await client.put("/v1/replicas/a")
        ended = await client.post("/v1/outcomes", json={"request_id": "r1", "ttft_s": 0.1})
        assert ended.json()["released"]
        assert (await client.get("/v1/replicas/a")).json()["requests"] == 0

    talk(make_service(), steps, replicas="a")


def test_256_routes_at_once_over_4_idle_replicas_give_64_each() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        bodies = [PROMPT | {"chain": [n, 1000 + n], "input_tokens": 1024} for n in range(256)]
        await asyncio.gather(*(client.post("/v1/route", json=body) for body in bodies))
        listed = (await client.get("/v1/replicas")).json()["replicas"]
        assert [one["requests"] for one in listed] == [64, 64, 64, 64]

    talk(make_service(), steps, replicas="abcd")


@pytest.mark.parametrize("policy", ["least_load", "cache_aware", "kv_cost", "early_rdma", "btb"])
def test_100_cold_prompts_that_end_at_once_do_not_all_meet_on_one_replica(policy: str) -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        rng = Random(7)
        for number in range(100):
            body = {"chain": [rng.getrandbits(64) for _ in range(4)], "request_id": f"r{number}"}
            await route(client, **body)
            ended = {"request_id": f"r{number}", "ttft_s": 0.0}
            await client.post("/v1/outcomes", json=ended)
        listed = (await client.get("/v1/replicas")).json()["replicas"]
        assert min(one["routed"] for one in listed) >= 10

    talk(make_service(make_policy(policy, seed=3)), steps, replicas="abcd")


@pytest.mark.parametrize("answer", [None, Decision(()), Decision(("z",))])
def test_a_policy_that_fails_is_replaced_by_cache_aware(answer: Decision | None) -> None:
    kind = "exception" if answer is None else "invalid"

    async def steps(client: httpx.AsyncClient) -> None:
        for number in range(6):
            found = await route(client, request_id=f"r{number}")
            assert found["reason"] == f"cache_aware: policy failed ({kind})"
            ended = {"request_id": f"r{number}", "ttft_s": 0.1}
            assert (await client.post("/v1/outcomes", json=ended)).status_code == 200
        assert (await route(client, dry_run=True))["reason"] == found["reason"]
        listed = (await client.get("/v1/replicas")).json()["replicas"]
        # All share a prompt, so all go where the first one went.
        assert sorted(one["routed"] for one in listed) == [0, 0, 6]
        counted = metric(
            (await client.get("/metrics")).text, f'btb_policy_failures_total{{kind="{kind}"}}'
        )
        told = (await client.get("/v1/guard")).json()
        assert counted == told["failures"][kind] == 7.0
        assert ("a bug in somebody" in told["last_error"]) == (answer is None)

    talk(make_service(Failing(answer)), steps, replicas="abc")


def test_a_decision_that_takes_too_long_is_replaced_and_the_policy_has_a_pause() -> None:
    config = Config(guard=GuardSettings(mode="off"))
    service = Service(config, Failing(Decision(("a", "b"), reason="mine")), Forecaster({}))
    service.parts.cluster.add("a")
    service.parts.cluster.add("b")
    took_s = iter([0.0, 0.1, 1.0, 1.3, 2.0, 2.1, 3.0, 3.1])
    decider = Decider(service.parts, clock_s=lambda: next(took_s))

    def reason(at_s: float) -> str:
        arrival = Arrival(at_s, (11, 12), 512, 1024, request_id=f"at {at_s}")
        return decider.decide(arrival, service.parts.cluster.view(at_s, 512)).reason

    assert reason(1.0) == "mine"
    assert reason(2.0) == "cache_aware: policy failed (slow)"  # 0.3 s of at most 0.25 s
    assert reason(11.9) == "cache_aware: stopped"
    assert reason(12.0) == "mine"


def test_a_forecast_that_fails_leaves_the_decision_to_cache_aware() -> None:
    class Blind(Forecaster):
        def forecast_path(self, arrival: Arrival) -> list[Forecast]:
            raise ZeroDivisionError("a bug in somebody's model")

    async def steps(client: httpx.AsyncClient) -> None:
        for dry_run in (False, True):
            found = await route(client, dry_run=dry_run, request_id="r", forecast=False)
            assert found["reason"] == "cache_aware: policy failed (forecast)"
        assert (await client.get("/v1/guard")).json()["failures"] == {"forecast": 2}

    policy = Failing(Decision(("a",)))
    talk(
        Service(Config(guard=GuardSettings(mode="off")), policy, Blind({}, boundary_tokens=1024)),
        steps,
        replicas="ab",
    )


def test_observing_moves_nothing_and_says_what_it_would_have_moved() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        found = await route(client, request_id="r1")
        assert found["copies"] == []
        assert found["reason"] == "cache_aware: only observed"
        told = (await client.get("/v1/guard")).json()
        assert (told["mode"], told["copies"], told["copied_bytes"]) == ("observe", 1, 64)

    config = Config(guard=GuardSettings(mode="observe"))
    talk(Service(config, Copying(), Forecaster({}, boundary_tokens=1024)), steps, replicas="ab")


def test_a_guard_that_there_is_not_is_refused() -> None:
    config = Config(guard=GuardSettings(mode="on"))
    with pytest.raises(ConfigError, match="guard: mode must be one of off, observe, enforce"):
        Service(config, Copying(), Forecaster({}))


def test_a_policy_that_names_a_replica_that_is_gone_gets_its_next_one() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        found = await route(client)
        assert [one["replica"] for one in found["replicas"]] == ["b"]

    talk(make_service(Failing(Decision(("z", "b"), reason="x"))), steps, replicas="ab")
