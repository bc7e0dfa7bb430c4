"""One tenant never sees another's prefixes, whatever hashes and ids either of them sends."""

from collections.abc import Sequence
from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from btb.config import Config, GuardSettings
from btb.service.local import talk
from btb.service.service import Service
from btb.service.tenants import Tenants
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from forecasting.forecaster import Forecaster
from policies import make_policy
from policies.base import ClusterView, Copy, Decision, Feedback, Policy

PROMPT = {"chain": [11, 12, 13, 14], "block_tokens": 512, "input_tokens": 2048}


def make_service(policy: Policy | None = None) -> Service:
    return Service(
        Config(guard=GuardSettings(mode="off")),
        policy or make_policy("least_load", seed=1),
        Forecaster({}, boundary_tokens=1024),
    )


async def route(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/route", json=PROMPT | fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_tenant_sees_its_own_prefixes_only_however_it_is_named() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        header = {"X-BTB-Tenant": "acme"}
        await client.post("/v1/arrivals", json=PROMPT, headers=header)
        await client.post("/v1/arrivals", json=PROMPT | {"tenant": "acme"})
        await client.post("/v1/arrivals", json=PROMPT | {"tenant": "acme"}, headers=header)
        await client.post("/v1/arrivals", json=PROMPT | {"tenant": "initech"})
        for name, seen in (("acme", [3]), ("initech", [1]), ("", []), ("acm", [])):
            query = {"tenant": name} if name else {}
            found = (await client.get("/v1/forecasts", params=query)).json()["forecasts"]
            assert [one["seen"] for one in found] == seen
            assert [one["prefix"] for one in found] == ["0x000000000000000c"] * len(seen)
            one = await client.get("/v1/forecasts/12", params=query)
            assert one.status_code == (200 if seen else 404)
        by_header = await client.get("/v1/forecasts/12", headers=header)
        assert by_header.json()["seen"] == 3
        both = await client.get("/v1/forecasts/12", headers=header, params={"tenant": "initech"})
        assert (both.status_code, both.json()["detail"][0]["loc"]) == (422, ["query", "tenant"])

    talk(make_service(), steps)


def test_names_beyond_ascii_are_one_tenant_in_header_and_body() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        header = [(b"X-BTB-Tenant", "müller".encode())]
        await client.post("/v1/arrivals", json=PROMPT, headers=header)
        await client.post("/v1/arrivals", json=PROMPT | {"tenant": "müller"})
        found = await client.get("/v1/forecasts/12", params={"tenant": "müller"})
        assert found.json()["seen"] == 2

    talk(make_service(), steps)


def test_request_ids_and_residency_of_tenants_stay_apart() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        await route(client, request_id="r1", tenant="acme")
        other = await route(client, request_id="r1", tenant="initech")
        assert other["replicas"][0]["requests"] == 1
        assert (await client.get("/v1/replicas/a")).json()["resident_blocks"] == 8
        stolen = await client.post("/v1/outcomes", json={"request_id": "r1"})
        assert stolen.status_code == 404
        for tenant in ("acme", "initech"):
            ended = {"request_id": "r1", "tenant": tenant}
            assert (await client.post("/v1/outcomes", json=ended)).json()["released"]

    talk(make_service(), steps, replicas="a")


class Gossip:
    """Has the first prompt that it saw copied, whoever asks."""

    horizons_s = (15.0,)

    def __init__(self) -> None:
        self.first: Decision | None = None

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        if self.first is None:
            a, b = cluster.replicas
            prefix = Prefix(arrival.chain[-1], len(arrival.chain), arrival.input_tokens)
            copy = Copy(prefix, arrival.chain, a, b, 64, 0.0, 1.0, 0.0, "for a test")
            self.first = Decision((a, b), (copy,), "gossip")
        return self.first

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        """Learn nothing."""


def test_a_copy_of_another_tenants_prefix_is_neither_told_nor_ordered() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        assert (await route(client, tenant="acme", dry_run=True))["copies"] == []
        assert (await route(client, tenant="initech"))["copies"] == []
        assert [one["copy_id"] for one in (await route(client, tenant="acme"))["copies"]] == ["c1"]
        assert 'btb_copies_total{state="withheld"} 1.0' in (await client.get("/metrics")).text

    talk(make_service(Gossip()), steps, replicas="ab")


names = st.text(max_size=6)
hashes = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6).map(tuple)


@given(one=names, other=names, chain=hashes, more=hashes)
def test_blocks_of_two_tenants_never_meet_and_each_gets_its_own_names_back(
    one: str, other: str, chain: tuple[int, ...], more: tuple[int, ...]
) -> None:
    tenants = Tenants()
    inside = tenants.tagged(chain, one)
    assert [tenants.untagged(block, one) for block in inside] == list(chain)
    if one != other:
        assert not set(inside) & set(tenants.tagged((*chain, *more), other))
        assert [tenants.untagged(block, other) for block in inside] == [None] * len(chain)
