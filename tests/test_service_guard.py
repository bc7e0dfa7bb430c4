"""Who may come in, and how much they may bring."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btb.config import Config, GuardSettings, Limits
from btb.service.guard import Guard
from btb.service.local import talk
from btb.service.metrics import Metrics
from btb.service.service import Service
from forecasting.forecaster import Forecaster
from policies import make_policy

JSON = {"Content-Type": "application/json"}
TOKEN = "a-secret-of-some-length"  # noqa: S105


def make_service(**limits: Any) -> Service:
    config = Config(policy="least_load", limits=Limits(**limits), guard=GuardSettings(mode="off"))
    return Service(config, make_policy("least_load", seed=1), Forecaster({}))


async def pieces(text: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def test_a_body_too_large_is_refused_whether_its_length_is_said_or_not() -> None:
    text = json.dumps({"input_tokens": 1, "session": "x" * 100}).encode()

    async def step(client: httpx.AsyncClient) -> None:
        said = await client.post("/v1/arrivals", content=text, headers=JSON)
        unsaid = await client.post("/v1/arrivals", content=pieces(text, 10), headers=JSON)
        for answer in (said, unsaid):
            assert answer.status_code == 413
            assert answer.json() == {"detail": "the body has more than 100 bytes"}
            assert answer.headers["connection"] == "close"
        small = await client.post(
            "/v1/arrivals", content=pieces(b'{"input_tokens": 1}', 5), headers=JSON
        )
        assert small.status_code == 202

    talk(make_service(body_bytes=100), step)


async def through_guard(receive: Callable[[], Awaitable[Any]], **limits: Any) -> list[Any]:
    """Return what is sent for a POST whose body comes from `receive`."""
    sent: list[Any] = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await send(await receive())

    async def send(message: Any) -> None:
        sent.append(message)

    guard = Guard(app, token="", limits=Limits(**limits), metrics=Metrics())
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]}
    await guard(scope, receive, send)
    return sent


def test_a_body_that_never_ends_is_given_up() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    sent = asyncio.run(through_guard(never, body_s=0.01))
    assert sent[0]["status"] == 408


def test_a_client_that_leaves_in_the_middle_is_forgotten() -> None:
    messages = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": b"{}", "more_body": True},
    ]

    async def receive() -> Any:
        return messages.pop()

    assert asyncio.run(through_guard(receive)) == []


@settings(max_examples=50)
@given(parts=st.lists(st.binary(max_size=20), min_size=1, max_size=8))
def test_a_body_in_pieces_arrives_whole_or_not_at_all(parts: list[bytes]) -> None:
    messages = [
        {"type": "http.request", "body": part, "more_body": index < len(parts) - 1}
        for index, part in enumerate(parts)
    ]
    messages.reverse()

    async def receive() -> Any:
        return messages.pop()

    sent = asyncio.run(through_guard(receive, body_bytes=60))
    whole = b"".join(parts)
    if len(whole) > 60:
        assert sent[0]["status"] == 413
    else:
        assert sent[0]["body"] == whole


def test_with_a_token_only_probes_are_open() -> None:
    async def step(client: httpx.AsyncClient) -> None:
        for path in ("/v1/forecasts", "/v1/replicas", "/metrics", "/docs", "/openapi.json", "/no"):
            refused = await client.get(path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        for word in ("Bearer wrong", TOKEN, f"bearer {TOKEN}", f"Bearer {TOKEN} ", "Bearer é"):
            headers = [(b"Authorization", word.encode())]
            assert (await client.get("/v1/replicas", headers=headers)).status_code == 401
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        right = {"Authorization": f"Bearer {TOKEN}", "Host": "btb.example.com"}
        assert (await client.get("/v1/replicas", headers=right)).status_code == 200
        text = (await client.get("/metrics", headers=right)).text
        assert 'btb_rejected_total{cause="unauthorized"} 11.0' in text

    talk(make_service(), step, token=TOKEN)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8017", 200),
        ("localhost", 200),
        ("LOCALHOST:9", 200),
        ("[::1]:8017", 200),
        ("127.1.2.3", 200),
        ("evil.example.com", 421),
        ("localhost.evil.example.com:8017", 421),
        ("10.0.0.1", 421),
        ("", 421),
    ],
)
def test_without_a_token_only_loopback_names_are_answered(host: str, status: int) -> None:
    async def step(client: httpx.AsyncClient) -> None:
        answer = await client.get("/v1/replicas", headers={"Host": host})
        assert answer.status_code == status

    talk(make_service(), step)


def test_a_form_of_a_web_page_is_no_json() -> None:
    async def step(client: httpx.AsyncClient) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = await client.post(
                "/v1/arrivals", content=b'{"input_tokens": 1}', headers={"Content-Type": kind}
            )
            assert answer.status_code == 422

    talk(make_service(), step)
