"""What a service knows after a restart, and what it does when its log can't be written."""

import json
import resource
from pathlib import Path

import httpx

from btb.config import Config, LogSettings
from btb.service.local import talk
from btb.service.service import Service
from forecasting.forecaster import Forecaster
from policies import make_policy

PROMPT = {"chain": [11, 12, 13, 14], "block_tokens": 512, "input_tokens": 2048}


def make_service(folder: Path) -> Service:
    config = Config(log=LogSettings(dir=str(folder), group_s=0.001))
    policy = make_policy("least_load", seed=1)
    return Service(config, policy, Forecaster({}, boundary_tokens=1024))


def test_a_restart_knows_what_was_logged(tmp_path: Path) -> None:
    async def before(client: httpx.AsyncClient) -> None:
        answer = await client.post(
            "/v1/arrivals", json={"arrivals": [PROMPT | {"tenant": "acme"}] * 3}
        )
        assert answer.json() == {"accepted": 3, "logged": True}
        await client.post("/v1/route", json=PROMPT | {"tenant": "acme", "request_id": "r1"})
        ended = {"request_id": "r1", "tenant": "acme", "ttft_s": 0.5, "hit_tokens": 0}
        await client.post("/v1/outcomes", json=ended)

    async def after(client: httpx.AsyncClient) -> None:
        ready = (await client.get("/readyz")).json()
        assert (ready["replayed_arrivals"], ready["damaged_rows"]) == (4, 0)
        assert ready["replayed_bytes"] == ready["replay_bytes"] > 0
        found = await client.get("/v1/forecasts/0xc", params={"tenant": "acme"})
        assert found.json()["seen"] == 4
        assert (await client.get("/v1/forecasts/0xc")).status_code == 404

    talk(make_service(tmp_path), before, replicas="a")
    talk(make_service(tmp_path), after)
    rows = [json.loads(line) for line in (tmp_path / "log-00000001.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["segment", *["arrival"] * 4, "outcome"]
    assert rows[5] == {
        "v": 1,
        "kind": "outcome",
        "at_s": rows[5]["at_s"],
        "request_id": "r1",
        "replica": "a",
        "ttft_s": 0.5,
        "hit_tokens": 0,
        "finished": True,
        "tenant": "acme",
    }


def test_the_clock_goes_on_after_a_restart_and_damaged_rows_are_counted(tmp_path: Path) -> None:
    service = make_service(tmp_path)
    service.parts.clock.catch_up(5_000.0)

    async def before(client: httpx.AsyncClient) -> None:
        await client.post("/v1/arrivals", json=PROMPT)

    async def after(client: httpx.AsyncClient) -> None:
        ready = (await client.get("/readyz")).json()
        assert 5_000.0 <= ready["now_s"] < 5_100.0
        assert (ready["replayed_arrivals"], ready["damaged_rows"]) == (1, 2)

    talk(service, before)
    path = tmp_path / "log-00000001.jsonl"
    good = path.read_bytes()
    bad = good.splitlines(keepends=True)[1].replace(b'"block_tokens":512', b'"block_tokens":0')
    path.write_bytes(b"{not json}\n" + bad + good)
    talk(make_service(tmp_path), after)


def test_what_a_full_disk_refuses_was_not_counted_and_routes_go_on(tmp_path: Path) -> None:
    service = make_service(tmp_path)

    async def steps(client: httpx.AsyncClient) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
        try:
            refused = await client.post("/v1/arrivals", json={"arrivals": [PROMPT] * 3})
            routed = await client.post("/v1/route", json=PROMPT)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert refused.status_code == 507
        assert "File too large" in refused.json()["detail"]
        assert refused.headers["retry-after"] == "5"
        assert routed.status_code == 200
        assert service.parts.forecaster.tallies()["arrivals"] == 1
        assert service.feed.unfed == 0
        assert (await client.post("/v1/arrivals", json=PROMPT)).status_code == 202

    talk(service, steps, replicas="a")
