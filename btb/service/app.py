"""The REST app around a service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse

from btb.service.errors import Location, Refused
from btb.service.guard import Guard
from btb.service.page import docs_page
from btb.service.routes import api
from btb.service.service import Service

MAX_PROBLEMS = 10
"""Wrong fields that an answer names; more are counted only."""

MAX_WORDS = 200
"""Characters of a message, and of a part of the way to a field."""


def make_app(service: Service, token: str = "") -> FastAPI:
    """Return the app that serves `service`, which starts and stops with it.

    With a `token`, requests need it as a bearer token.
    """

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    # No docs_url: FastAPI's page loads scripts from a CDN.
    app = FastAPI(
        title="btb",
        summary="Forecasts of prefix bursts, routes, and copies to make ahead of them.",
        version=version("bite-the-bullet"),
        docs_url=None,
        redoc_url=None,
        lifespan=running,
    )
    app.state.service = service
    app.include_router(api)
    app.add_middleware(
        Guard, token=token, limits=service.config.limits, metrics=service.parts.metrics
    )
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(
            docs_page(app.openapi()),
            headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
        )

    return app


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    _metrics(request).rejected.labels(error.cause).inc()
    headers = {"Retry-After": str(error.retry_s)} if error.retry_s else None
    detail = [_problem(error.at, error.message)] if error.at else error.message
    return JSONResponse({"detail": detail}, error.status, headers=headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Name the wrong fields, in FastAPI's form but without what was sent."""
    assert isinstance(error, RequestValidationError)
    _metrics(request).rejected.labels("invalid").inc()
    problems = error.errors()
    shown = [_problem(_plain(one["loc"]), _words(one)) for one in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        shown.append(_problem((), f"and {len(problems) - MAX_PROBLEMS} more"))
    return JSONResponse({"detail": shown}, 422)


def _metrics(request: Request) -> Any:
    return request.app.state.service.parts.metrics


def _problem(at: Location, message: str) -> dict[str, Any]:
    way = [one[:MAX_WORDS] if isinstance(one, str) else one for one in at]
    return {"loc": way, "msg": message[:MAX_WORDS]}


def _plain(at: Location) -> Location:
    """Leave out which of two body forms was meant: `body.one.chain` is `body.chain`."""
    return (*at[:1], *at[2:]) if at[1:2] in (("one",), ("many",)) else at


def _words(problem: dict[str, Any]) -> str:
    words = {
        "extra_forbidden": "is no known field",
        "model_attributes_type": "expected a JSON object",
        "model_type": "expected a JSON object",
        "dict_type": "expected a JSON object",
        "json_invalid": "is no JSON",
        "missing": "is needed",
    }
    return words.get(problem["type"], str(problem["msg"]))
