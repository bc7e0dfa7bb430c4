"""A real `btb serve` in a process of its own, and what a `kill -9` leaves behind."""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from btb.commands.replay import replay
from btb.service.local import serve_process
from btb.traces import open_windows

MODEL = ("--model", "ewma")
BATCH = 10
KILL_AFTER = 300


def batches() -> Iterator[list[dict[str, object]]]:
    number = 0
    while True:
        yield [
            {
                "chain": [1, 2, 1_000 + number + k],
                "block_tokens": 1024,
                "tenant": "acme",
                "request_id": f"r{number + k}",
            }
            for k in range(BATCH)
        ]
        number += BATCH


async def acknowledged(url: str, enough: Callable[[], None]) -> set[str]:
    """Send arrivals until the service is gone; return the ids of those it said it had taken.

    `enough` is called when `KILL_AFTER` were taken, while others are under way.
    """
    taken: set[str] = set()
    to_send = batches()

    async def sender(client: httpx.AsyncClient) -> None:
        for batch in to_send:
            answer = await client.post("/v1/arrivals", json={"arrivals": batch})
            assert answer.status_code == 202
            taken.update(str(one["request_id"]) for one in batch)
            if len(taken) >= KILL_AFTER:
                enough()

    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        ends = await asyncio.gather(*(sender(client) for _ in range(4)), return_exceptions=True)
    assert all(isinstance(end, httpx.TransportError) for end in ends), ends
    return taken


def logged(folder: Path) -> list[str]:
    """Return the ids in the log, as `btb audit` and `btb train` read it."""
    found = []
    for window in open_windows([folder]):
        found += [arrival.request_id for arrival in window]
        assert window.report.bad == 0
    return found


def test_after_kill_9_all_that_was_acknowledged_is_in_a_clean_log(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with serve_process(*MODEL, "--log-dir", str(folder)) as (process, url):
        taken = asyncio.run(acknowledged(url, process.kill))
        assert process.wait() == -signal.SIGKILL
    assert len(taken) >= KILL_AFTER
    with serve_process(*MODEL, "--log-dir", str(folder)) as (process, url):
        ready = httpx.get(f"{url}/readyz", trust_env=False).json()
        assert ready["damaged_rows"] == 0
        assert ready["replayed_arrivals"] >= len(taken)
        forecast = httpx.get(f"{url}/v1/forecasts/2?tenant=acme", trust_env=False).json()
        assert forecast["seen"] == ready["replayed_arrivals"]
    ids = logged(folder)
    assert taken <= set(ids)
    assert len(ids) == len(set(ids)) == ready["replayed_arrivals"]


def test_a_trace_is_replayed_to_a_service_without_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = (
        {"timestamp": 10 * n, "input_length": 1100, "output_length": 1, "hash_ids": [1, 2, n + 9]}
        for n in range(200)
    )
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serve_process(*MODEL) as (_, url):
        replay(trace, to=url, rate=400.0, json_to=Path("-"))
        policies = httpx.get(f"{url}/v1/policies", trust_env=False).json()["policies"]
    result = json.loads(capsys.readouterr().out)
    assert (result["sent"], result["accepted"], result["errors"]) == (200, 200, {})
    assert [one["policy"] for one in policies if one["current"]] == ["btb"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "can be reached from elsewhere: give --token-file"),  # noqa: S104
        (["--policy", "btbb"], "no policy is called 'btbb'"),
    ],
)
def test_a_service_that_cannot_start_says_why(options: list[str], message: str) -> None:
    with pytest.raises(RuntimeError) as raised, serve_process(*MODEL, *options):
        pass
    assert message in str(raised.value)
    assert "Traceback" not in str(raised.value)


def test_ctrl_c_ends_a_service_and_its_log_at_once(tmp_path: Path) -> None:
    with serve_process(*MODEL, "--log-dir", str(tmp_path)) as (process, url):
        body = {"input_tokens": 5, "request_id": "r1"}
        assert httpx.post(f"{url}/v1/arrivals", json=body, trust_env=False).status_code == 202
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
    assert logged(tmp_path) == ["r1"]


def test_a_log_in_use_is_not_shared(tmp_path: Path) -> None:
    options = (*MODEL, "--log-dir", str(tmp_path))
    with (
        serve_process(*options),
        pytest.raises(RuntimeError, match="in use by another btb serve"),
        serve_process(*options),
    ):
        pass
