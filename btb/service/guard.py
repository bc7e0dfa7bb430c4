"""What stands before every request: who may come in, and how much they may bring."""

import asyncio
from hmac import compare_digest
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from btb.config import Limits
from btb.service.metrics import Metrics

OPEN_PATHS = frozenset(("/healthz", "/readyz"))
"""What needs no token: it is for whoever keeps the process alive, and says nothing of requests."""

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
"""What the loopback address is called most; see `is_loopback`."""


class Guard:
    """ASGI middleware: a token where there is one, loopback names only where there is none.

    Without a token a request must be addressed to a loopback name, so that a web page can't reach
    the service by a name of its own that leads to 127.0.0.1. Bodies are read here, whole, up to
    `body_bytes` and for `body_s`.
    """

    def __init__(self, app: ASGIApp, *, token: str, limits: Limits, metrics: Metrics) -> None:
        self._app = app
        self._token = f"Bearer {token}".encode() if token else b""
        self._limits = limits
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer in its place."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None and scope["method"] in ("POST", "PUT"):
            try:
                async with asyncio.timeout(self._limits.body_s):
                    body = await self._body(scope, receive)
            except TimeoutError:
                refusal = self._refuse(408, "the body took too long", "slow")
            except _TooLarge:
                message = f"the body has more than {self._limits.body_bytes} bytes"
                refusal = self._refuse(413, message, "too_large")
            except _Gone:
                return
            else:
                receive = _replay(body, receive)
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if not self._token:
            host = _host_name(headers.get("host", ""))
            if not is_loopback(host):
                return self._refuse(421, "is served on loopback names only", "host")
            return None
        if scope["path"] in OPEN_PATHS:
            return None
        given = headers.get("authorization", "").encode("latin-1")
        if compare_digest(given, self._token):
            return None
        refusal = self._refuse(401, "the bearer token is missing or wrong", "unauthorized")
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal

    def _refuse(self, status: int, message: str, cause: str) -> JSONResponse:
        self._metrics.rejected.labels(cause).inc()
        # The rest of the body is not read, so the connection is of no more use.
        return JSONResponse({"detail": message}, status, headers={"Connection": "close"})

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        most = self._limits.body_bytes
        said = Headers(scope=scope).get("content-length", "")
        if said.isdecimal() and int(said[:20]) > most:
            raise _TooLarge
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise _TooLarge
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)


class _TooLarge(Exception):
    """The body has more bytes than are taken."""


class _Gone(Exception):
    """The client went away before its body was complete."""


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives `body` first, then whatever else comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("127.8.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    >>> is_loopback("localhost.example.com")
    False
    """
    if host in LOOPBACK:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port.

    >>> _host_name("localhost:8017"), _host_name("[::1]:8017"), _host_name("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
