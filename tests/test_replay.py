"""The client that feeds a trace to a service, and how it scores the forecasts it was given."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from btb.commands.replay import replay as replay_command
from btb.commands.replay_tables import result_of
from btb.config import Config, GuardSettings
from btb.errors import ConfigError, TraceError
from btb.service.local import local_client
from btb.service.replay import MAX_BATCH, Pace, Replay, Tally
from btb.service.replay_score import Score, Scores
from btb.service.service import Service
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from policies import make_policy


def trace(count: int, gap_s: float = 0.0, tenant: str = "") -> list[Arrival]:
    return [
        Arrival(5.0 + n * gap_s, (1, 2, 100 + n), 1024, 3072, tenant=tenant, request_id=f"r{n}")
        for n in range(count)
    ]


def unwatched(_: Tally) -> None:
    """Watch nothing."""


def answering(handler: Callable[[httpx.Request], httpx.Response]) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.MockTransport(handler), base_url="http://127.0.0.1")


def run(handler: Callable[[httpx.Request], httpx.Response], **pace: Any) -> Replay:
    async def talk() -> Replay:
        async with answering(handler) as client:
            done = Replay(client, Pace(**pace))
            await done.run(trace(20), unwatched)
            return done

    return asyncio.run(talk())


def test_a_service_counts_what_a_replay_sends() -> None:
    service = Service(
        Config(guard=GuardSettings(mode="off")), make_policy("least_load", seed=1), Forecaster({})
    )

    async def talk() -> Replay:
        async with local_client(service) as client:
            done = Replay(client, Pace(rate=2_000.0, compare_s=0.01, limit=60))
            await done.run(trace(100, tenant="acme"), unwatched)
            answer = await client.get("/v1/forecasts/2", params={"tenant": "acme"})
            assert answer.json()["seen"] == 60
            return done

    done = asyncio.run(talk())
    assert (done.tally.sent, done.tally.accepted) == (60, 60)
    assert not done.tally.errors
    assert not done.tally.stopped
    assert len(done.tally.latency_s) == len(done.tally.lag_s) > 0


def test_arrivals_are_sent_without_their_times_and_with_all_else() -> None:
    bodies: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        bodies.extend(json.loads(request.content)["arrivals"])
        return httpx.Response(202, json={"accepted": 1})

    run(handler, speed=1.0, limit=1)
    assert bodies == [
        {
            "chain": [1, 2, 100],
            "block_tokens": 1024,
            "input_tokens": 3072,
            "output_tokens": 1,
            "request_id": "r0",
        }
    ]


def test_no_batch_is_longer_than_a_service_takes() -> None:
    sizes: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sizes.append(len(json.loads(request.content)["arrivals"]))
        return httpx.Response(202, json={"accepted": sizes[-1]})

    async def talk() -> None:
        async with answering(handler) as client:
            await Replay(client, Pace()).run(trace(2 * MAX_BATCH + 1), unwatched)

    asyncio.run(talk())
    assert sizes == [MAX_BATCH, MAX_BATCH, 1]


def test_errors_are_counted_by_kind_and_the_replay_goes_on() -> None:
    answers: Iterator[int] = iter([503, 202, 422])

    def handler(request: httpx.Request) -> httpx.Response:
        status = next(answers, 0)
        if not status:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(status, json={"accepted": 2})

    async def talk() -> Replay:
        async with answering(handler) as client:
            done = Replay(client, Pace())
            await done.run(trace(5 * MAX_BATCH), unwatched)
            return done

    done = asyncio.run(talk())
    assert done.tally.errors == {"status 503": 1, "status 422": 1, "ConnectError": 2}
    assert (done.tally.sent, done.tally.accepted) == (5 * MAX_BATCH, 2)


def test_a_stop_ends_it_after_what_is_on_its_way() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(202, json={"accepted": 1})

    async def talk() -> Replay:
        async with answering(handler) as client:
            done = Replay(client, Pace())
            await done.run(trace(100, gap_s=1e3), lambda _: done.stop())
            return done

    done = asyncio.run(talk())
    assert done.tally.stopped
    assert (done.tally.sent, done.tally.accepted) == (1, 1)


def test_a_trace_that_breaks_off_says_so_as_itself() -> None:
    def broken() -> Iterator[Arrival]:
        yield trace(1)[0]
        raise TraceError("line 2: no JSON")

    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(202, json={"accepted": 1})

    async def talk() -> None:
        async with answering(handler) as client:
            await Replay(client, Pace()).run(broken(), unwatched)

    with pytest.raises(TraceError, match="line 2"):
        asyncio.run(talk())


def horizon(seconds: float, mean: float) -> dict[str, Any]:
    return {"horizon_s": seconds, "mean": mean, "low": 1, "high": 2}


def test_forecasts_are_scored_when_their_horizon_is_over_by_what_was_sent_within() -> None:
    scores = Scores()
    scores.add([{"prefix": "0x7", "horizons": [horizon(1.0, 2.0), horizon(5.0, 8.0)]}], now_s=10.0)
    scores.sent((7, 1), now_s=10.5)
    scores.sent((7, 2), now_s=11.0)
    scores.add([{"prefix": "0x7", "horizons": [horizon(1.0, 0.0)]}], now_s=12.0)
    scores.sent((8, 7), now_s=13.5)  # after 12 + 1, before 10 + 5
    scores.settle(now_s=20.0)
    assert scores.by_horizon == {
        1.0: Score(forecasts=2, mean=2.0, came=2, error=0.0, inside=1),
        5.0: Score(forecasts=1, mean=8.0, came=3, error=5.0, inside=0),
    }
    assert scores.unfinished == 0


def test_forecasts_that_look_past_the_end_are_left_out_and_counted() -> None:
    scores = Scores()
    scores.add([{"prefix": "0x7", "horizons": [horizon(1.0, 2.0), horizon(5.0, 8.0)]}], now_s=0.0)
    scores.settle(now_s=2.0)
    assert scores.by_horizon[1.0].forecasts == 1
    assert scores.by_horizon[5.0].forecasts == 0
    assert scores.unfinished == 1


def test_a_result_has_means_by_horizon() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(202, json={"accepted": 20})

    done = run(handler)
    done.scores.by_horizon[15.0] = Score(forecasts=4, mean=8.0, came=10, error=6.0, inside=3)
    result = result_of(done, "t")
    assert (result["trace"], result["sent"], result["accepted"]) == ("t", 20, 20)
    assert result["horizons"] == [
        {
            "horizon_s": 15.0,
            "forecasts": 4,
            "mean_forecast": 2.0,
            "mean_came": 2.5,
            "mean_error": 1.5,
            "inside_share": 0.75,
        }
    ]
    assert result["latency_p50_s"] <= result["latency_p99_s"]


def write_trace(folder: Path) -> Path:
    path = folder / "trace.jsonl"
    row = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}
    path.write_text(json.dumps(row) + "\n")
    return path


def test_a_service_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no service answers at http://127\.0\.0\.1:9"):
        replay_command(write_trace(tmp_path), to="http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "127.0.0.1:8017"}, "--to 127.0.0.1:8017"),
        ({"to": "http://127.0.0.1:9", "speed": 0.0}, "--speed must be more than 0"),
        ({"to": "http://127.0.0.1:9", "speed": float("nan")}, "--speed must be more than 0"),
        ({"to": "http://127.0.0.1:9", "rate": -1.0}, "--rate"),
        ({"to": "http://127.0.0.1:9", "token_file": Path("no/such/file")}, "can't be read"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        replay_command(write_trace(tmp_path), **options)
    assert message in str(raised.value)
