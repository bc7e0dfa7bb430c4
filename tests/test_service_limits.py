"""What the service refuses, with which status, and what it says."""

from typing import Any

import httpx
import pytest

from btb.config import Config, GuardSettings, Limits
from btb.service.local import talk
from btb.service.service import Service
from forecasting.forecaster import Forecaster
from policies import make_policy

JSON = {"Content-Type": "application/json"}
TOKEN = "a-secret-of-some-length"  # noqa: S105


def make_service(**limits: Any) -> Service:
    config = Config(policy="least_load", limits=Limits(**limits), guard=GuardSettings(mode="off"))
    return Service(config, make_policy("least_load", seed=1), Forecaster({}))


def problem(answer: httpx.Response) -> tuple[list[str | int], str]:
    (first, *_) = answer.json()["detail"]
    return first["loc"], first["msg"]


@pytest.mark.parametrize(
    ("body", "at", "message"),
    [
        ([], [], "expected a JSON object"),
        ({}, ["input_tokens"], "is needed where no chain, text or token_ids is given"),
        ({"chian": [1]}, ["chian"], "is no known field"),
        ({"chain": 5}, ["chain"], "expected a list of 64-bit hashes"),
        ({"chain": [1, "zz"], "block_tokens": 4}, ["chain"], "item 1: expected 64-bit hashes"),
        ({"chain": [-1], "block_tokens": 4}, ["chain"], "item 0: expected 64-bit hashes"),
        ({"chain": [2**64], "block_tokens": 4}, ["chain"], "item 0: expected 64-bit hashes"),
        ({"chain": [1.0], "block_tokens": 4}, ["chain"], "item 0: expected 64-bit hashes"),
        ({"chain": [True], "block_tokens": 4}, ["chain"], "item 0: expected 64-bit hashes"),
        ({"chain": [1]}, ["block_tokens"], "is needed beside chain"),
        ({"chain": [1], "block_tokens": 0}, ["block_tokens"], "greater than or equal to 1"),
        (
            {"chain": [1, 2, 3], "block_tokens": 512, "input_tokens": 1024},
            ["input_tokens"],
            "is too few for 3 blocks of 512 tokens",
        ),
        ({"text": "x", "chain": [1], "block_tokens": 4}, ["text"], "comes beside chain"),
        ({"input_tokens": 0}, ["input_tokens"], "must be 1 or more"),
        ({"token_ids": [-5], "block_tokens": 4}, ["token_ids"], "item 0: expected token ids"),
        ({"input_tokens": True}, ["input_tokens"], "valid integer"),
        ({"input_tokens": 2**41}, ["input_tokens"], "less than or equal to"),
        ({"input_tokens": 1, "tenant": "x" * 257}, ["tenant"], "at most 256 characters"),
        ({"input_tokens": 1, "at_s": "now"}, ["at_s"], "valid number"),
        ({"input_tokens": 1, "at_s": 1e6}, ["at_s"], "too far from the service's clock"),
        ({"chain": list(range(9)), "block_tokens": 4}, ["chain"], "has 9 blocks; at most 8"),
        ({"text": "x" * 144, "block_tokens": 4}, ["text"], "has 9 blocks; at most 8"),
        ({"token_ids": [1] * 36, "block_tokens": 4}, ["token_ids"], "has 9 blocks; at most 8"),
    ],
)
def test_a_wrong_field_is_named(body: Any, at: list[str], message: str) -> None:
    async def step(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/arrivals", json=body)
        found_at, found = problem(answer)
        assert (answer.status_code, found_at) == (422, ["body", *at])
        assert message in found
        if not isinstance(body, dict):
            return
        many = await client.post("/v1/arrivals", json={"arrivals": [{"input_tokens": 1}, body]})
        assert (many.status_code, problem(many)[0]) == (422, ["body", "arrivals", 1, *at])

    talk(make_service(chain_blocks=8), step)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    async def step(client: httpx.AsyncClient) -> None:
        bodies = {
            "/v1/arrivals": f'{{"input_tokens": 1, "at_s": {number}}}',
            "/v1/outcomes": f'{{"request_id": "x", "ttft_s": {number}}}',
        }
        for path, text in bodies.items():
            answer = await client.post(path, content=text, headers=JSON)
            assert answer.status_code == 422
        answer = await client.put(
            "/v1/replicas/a", content=f'{{"free_bytes": {number}}}', headers=JSON
        )
        assert answer.status_code == 422

    talk(make_service(), step)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"nonsense", 422),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b'{"input_tokens": ' + b"1" * 5_000 + b"}", 400),
        (b'{"tenant": "\\ud800", "input_tokens": 1}', 422),
    ],
)
def test_what_is_no_json_is_refused_in_few_words(text: bytes, status: int) -> None:
    async def step(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/arrivals", content=text, headers=JSON)
        assert answer.status_code == status
        assert len(answer.content) < 300

    talk(make_service(), step)


def test_an_answer_never_repeats_what_was_sent_and_names_ten_problems_at_most() -> None:
    async def step(client: httpx.AsyncClient) -> None:
        body = {"arrivals": [{"x" * 5_000: "y" * 5_000} for _ in range(50)]}
        answer = await client.post("/v1/arrivals", json=body)
        assert answer.status_code == 422
        assert len(answer.json()["detail"]) == 11
        assert answer.json()["detail"][-1]["msg"] == "and 40 more"
        assert len(answer.content) < 5_000
        assert b"yyy" not in answer.content

    talk(make_service(), step)


def test_a_batch_too_long_is_refused_whole() -> None:
    service = make_service(batch=2)

    async def step(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/arrivals", json={"arrivals": [{"input_tokens": 1}] * 3})
        assert answer.status_code == 422
        assert problem(answer) == (["body", "arrivals"], "has 3 items; at most 2 are taken")
        assert service.parts.forecaster.tallies()["arrivals"] == 0

    talk(service, step)


def test_too_many_arrivals_waiting_are_refused_with_a_time_to_retry() -> None:
    service = make_service(unfed_arrivals=2)
    service.feed.unfed = 1

    async def step(client: httpx.AsyncClient) -> None:
        refused = await client.post("/v1/arrivals", json={"arrivals": [{"input_tokens": 1}] * 2})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert (await client.post("/v1/arrivals", json={"input_tokens": 1})).status_code == 202

    talk(service, step)


def test_until_the_log_is_read_nothing_is_taken() -> None:
    service = make_service()

    async def step(client: httpx.AsyncClient) -> None:
        service.ready = False
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        for path, body in (
            ("/v1/arrivals", {"input_tokens": 1}),
            ("/v1/route", {"input_tokens": 1}),
            ("/v1/outcomes", {"request_id": "r"}),
        ):
            assert (await client.post(path, json=body)).status_code == 503

    talk(service, step)


def test_replicas_past_the_limit_and_unknown_fields_are_refused() -> None:
    async def step(client: httpx.AsyncClient) -> None:
        assert (await client.put("/v1/replicas/a")).status_code == 200
        assert (await client.put("/v1/replicas/b")).status_code == 409
        assert (await client.put("/v1/replicas/a")).status_code == 200
        answer = await client.put("/v1/replicas/a", json={"load": 3})
        assert problem(answer) == (["body", "load"], "is no known field")
        assert (await client.put(f"/v1/replicas/{'a' * 129}")).status_code == 422

    talk(make_service(replicas=1), step)


@pytest.mark.parametrize("top", ["0", "-1", "11", "x", "1.5"])
def test_top_has_bounds(top: str) -> None:
    async def step(client: httpx.AsyncClient) -> None:
        answer = await client.get("/v1/forecasts", params={"top": top})
        assert (answer.status_code, problem(answer)[0]) == (422, ["query", "top"])

    talk(make_service(top=10), step)


def test_an_outcome_of_nothing_is_not_found() -> None:
    async def step(client: httpx.AsyncClient) -> None:
        assert (await client.post("/v1/outcomes", json={})).status_code == 404
        assert (await client.post("/v1/outcomes", json={"request_id": "x"})).status_code == 404

    talk(make_service(), step)


def test_requests_under_way_past_the_limit_make_room_for_newer_ones() -> None:
    async def step(client: httpx.AsyncClient) -> None:
        await client.put("/v1/replicas/a")
        for number in range(3):
            body = {"input_tokens": 1, "request_id": f"r{number}"}
            assert (await client.post("/v1/route", json=body)).status_code == 200
        assert (await client.get("/v1/replicas/a")).json()["requests"] == 2
        assert (await client.post("/v1/outcomes", json={"request_id": "r0"})).status_code == 404
        text = (await client.get("/metrics")).text
        assert 'btb_released_requests_total{cause="crowded_out"} 1.0' in text
        assert 'btb_rejected_total{cause="not_found"} 1.0' in text

    talk(make_service(outstanding=2), step)
