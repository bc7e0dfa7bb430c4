"""The addresses of the service but routing, asked in the same process without a socket."""

import httpx
import pytest

from btb.config import Config, GuardSettings
from btb.service.local import talk
from btb.service.service import Service
from forecasting.forecaster import Forecaster
from models.base import HORIZONS_S, CountModel, Features
from models.counts import Counts
from models.state import State
from policies import make_policy

PROMPT = {"chain": [11, 12, 13, 14], "block_tokens": 512, "input_tokens": 2048}


class SoFar:
    """Expects as many arrivals a second as there were so far."""

    def __init__(self, horizon_s: float = 1.0) -> None:
        self._horizon_s = horizon_s

    def predict_one(self, x: Features) -> Counts:
        return Counts(self._horizon_s * x["arrivals"])

    def learn_one(self, x: Features, count: int) -> None:
        """Learn nothing."""

    def to_state(self) -> State:
        return {}

    @classmethod
    def from_state(cls, state: State) -> "SoFar":
        return cls()


def make_service() -> Service:
    models: dict[float, CountModel] = {horizon_s: SoFar(horizon_s) for horizon_s in HORIZONS_S}
    forecaster = Forecaster(models, boundary_tokens=1024)
    return Service(
        Config(policy="least_load", guard=GuardSettings(mode="off")),
        make_policy("least_load", seed=1),
        forecaster,
    )


def metric(text: str, name: str) -> float:
    """Return the value of one series in Prometheus' text format; 0 where there is none."""
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.rpartition(" ")[2])
    return 0.0


def test_arrivals_alone_or_many_are_counted_and_forecast() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        one = await client.post("/v1/arrivals", json=PROMPT)
        many = await client.post("/v1/arrivals", json={"arrivals": [PROMPT, PROMPT]})
        assert (one.status_code, one.json()) == (202, {"accepted": 1, "logged": False})
        assert many.json()["accepted"] == 2
        answer = (await client.get("/v1/forecasts")).json()
        (forecast,) = answer["forecasts"]
        assert (forecast["prefix"], forecast["blocks"]) == ("0x000000000000000c", 2)
        assert (forecast["tokens"], forecast["seen"]) == (1024, 3)
        assert [one["horizon_s"] for one in forecast["horizons"]] == [1.0, 5.0, 15.0, 60.0]
        first = forecast["horizons"][0]
        assert first["mean"] == pytest.approx(3.0)
        assert (first["low"], first["high"]) == (1, 5)  # of Poisson with mean 3
        assert first["at_least_1"] == pytest.approx(0.9502, abs=1e-4)
        assert first["at_least_20"] < 1e-9
        metrics = (await client.get("/metrics")).text
        assert metric(metrics, 'btb_arrivals_total{source="posted"}') == 3.0
        assert metric(metrics, 'btb_forecaster{tally="arrivals"}') == 3.0

    talk(make_service(), steps)


@pytest.mark.parametrize("prefix", ["12", "0xc", "0x000000000000000C"])
def test_a_forecast_is_asked_for_by_hash(prefix: str) -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        await client.post("/v1/arrivals", json=PROMPT)
        answer = await client.get(f"/v1/forecasts/{prefix}")
        assert (answer.status_code, answer.json()["seen"]) == (200, 1)
        assert (await client.get("/v1/forecasts/99")).status_code == 404
        wrong = await client.get("/v1/forecasts/c")
        assert wrong.status_code == 422
        assert wrong.json()["detail"][0]["loc"] == ["path", "prefix"]

    talk(make_service(), steps)


def test_text_and_token_ids_are_hashed_here_and_share_what_they_share() -> None:
    system = "You are a helpful assistant. " * 100

    async def steps(client: httpx.AsyncClient) -> None:
        for question in ("Why?", "How?"):
            body = {"text": system + question, "block_tokens": 64}
            assert (await client.post("/v1/arrivals", json=body)).status_code == 202
        for last in (1, 2):
            body_ids = {"token_ids": [*range(2048), last], "block_tokens": 64}
            assert (await client.post("/v1/arrivals", json=body_ids)).status_code == 202
        hottest = (await client.get("/v1/forecasts")).json()["forecasts"]
        assert [one["seen"] for one in hottest] == [2]

    talk(make_service(), steps)


def test_replicas_come_report_and_go() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        body = {"running": 2, "waiting": 1, "free_bytes": 1e9, "setup": "qwen3_8b_h100x4"}
        made = (await client.put("/v1/replicas/10.0.0.1:8000", json=body)).json()
        assert (made["setup"], made["requests"]) == ("qwen3_8b_h100x4", 3)
        assert made["free_bytes"] == 1e9
        listed = (await client.get("/v1/replicas")).json()["replicas"]
        assert [one["replica"] for one in listed] == ["a", "10.0.0.1:8000"]
        assert (await client.delete("/v1/replicas/a")).status_code == 204
        for method in ("GET", "DELETE"):
            assert (await client.request(method, "/v1/replicas/a")).status_code == 404
        assert (await client.put("/v1/replicas/b", json={"setup": "x"})).status_code == 422
        assert (await client.put("/v1/replicas/a b")).status_code == 422

    talk(make_service(), steps, replicas="a")


def test_policies_are_listed_and_the_current_one_marked() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        listed = (await client.get("/v1/policies")).json()["policies"]
        by_name = {one["policy"]: one for one in listed}
        assert {"random", "least_load", "cache_aware", "early_rdma", "btb"} <= by_name.keys()
        assert by_name["least_load"]["summary"].startswith("The replica with the fewest requests")
        assert [one["policy"] for one in listed if one["current"]] == ["least_load"]

    talk(make_service(), steps)


def test_reasons_past_the_first_32_are_counted_together() -> None:
    service = make_service()
    for number in range(40):
        service.parts.metrics.decided(f"reason {number}")

    async def steps(client: httpx.AsyncClient) -> None:
        metrics = (await client.get("/metrics")).text
        assert metric(metrics, 'btb_decisions_total{reason="other"}') == 8.0

    talk(service, steps)


def test_the_docs_page_shows_every_address_and_loads_nothing() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        page = await client.get("/docs")
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        for loads in ("<script", "<link", "src=", "http://", "https://"):
            assert loads not in page.text
        contract = (await client.get("/openapi.json")).json()
        for path in contract["paths"]:
            assert path in page.text
        assert "/v1/route" in contract["paths"]

    talk(make_service(), steps)


def test_health_and_readiness() -> None:
    async def steps(client: httpx.AsyncClient) -> None:
        assert (await client.get("/healthz")).json() == {"ok": True}
        ready = await client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["ready"]
        assert ready.json()["replicas"] == 0

    talk(make_service(), steps)
