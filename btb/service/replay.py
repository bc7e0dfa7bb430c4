"""Feeds a trace to a running service, at the trace's own pace or a given one."""

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import Any

import httpx

from btb.service.replay_score import Scores
from forecasting.arrival import Arrival

TICK_S = 0.02
"""What comes due within one tick is sent together."""

NAP_S = 0.25
"""Longest sleep, so that a stop is heeded."""

MAX_BATCH = 500
MAX_IN_FLIGHT = 8
"""Batches that are on their way at a time; past this, sending waits, and the lag shows it."""

ACCEPTED, OK = 202, 200

_JSON = {"Content-Type": "application/json"}

KEPT = 100_000
"""Batches whose latency and lag are kept, the latest."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast: the trace's times divided by `speed`, or `rate` arrivals a second if it is given.

    `top` forecasts are compared with what comes, every `compare_s` seconds.
    """

    speed: float = 1.0
    rate: float = 0.0
    limit: int | None = None
    top: int = 10
    compare_s: float = 2.0


@dataclass(slots=True)
class Tally:
    """How a replay goes: arrivals `sent` and `accepted`, errors by kind, and times of batches.

    `lag_s` is how long after its time the oldest arrival of a batch was sent.
    """

    sent: int = 0
    accepted: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    lag_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    ran_s: float = 0.0
    stopped: bool = False


class Replay:
    """One replay: `run` it in an event loop, `stop` it from there; `tally` and `scores` fill up.

    The client has the service's URL, and the token if there is one. Arrivals are sent without their
    times, so they come at the service's time: at 10 times the speed, bursts are 10 times as fast.
    """

    def __init__(self, client: httpx.AsyncClient, pace: Pace) -> None:
        self.tally = Tally()
        self.scores = Scores()
        self._client = client
        self._pace = pace
        self._stopping = False
        self._posts: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._tenants: Counter[str] = Counter()

    def stop(self) -> None:
        """Send no more, and have `run` return when what is on its way has been answered."""
        self._stopping = True

    async def run(self, trace: Iterable[Arrival], watch: Callable[[Tally], None]) -> None:
        """Send `trace`; `watch` is told of each batch that was answered.

        Raises
        ------
        TraceError
            If the trace can't be read on. What is on its way is answered first.
        """
        start_s = monotonic()
        comparing = asyncio.create_task(self._compare())
        try:
            await self._send_all(schedule(trace, self._pace), start_s, watch)
        finally:
            comparing.cancel()
            await asyncio.gather(comparing, *self._posts, return_exceptions=True)
            self.scores.settle(monotonic())
            self.tally.ran_s = monotonic() - start_s
            self.tally.stopped = self._stopping

    async def _send_all(
        self, due: Iterator[tuple[float, Arrival]], start_s: float, watch: Callable[[Tally], None]
    ) -> None:
        upcoming = next(due, None)
        while upcoming is not None and not self._stopping:
            first_s, now_s = upcoming[0], monotonic() - start_s
            if first_s > now_s:
                await asyncio.sleep(min(NAP_S, max(TICK_S, first_s - now_s)))
                continue
            batch: list[Arrival] = []
            while upcoming is not None and upcoming[0] <= now_s and len(batch) < MAX_BATCH:
                batch.append(upcoming[1])
                upcoming = next(due, None)
            await self._slots.acquire()
            self._count(batch, monotonic(), start_s + first_s)
            post = asyncio.create_task(self._post(batch, watch))
            self._posts.add(post)
            post.add_done_callback(self._posts.discard)

    def _count(self, batch: Sequence[Arrival], now_s: float, due_s: float) -> None:
        self.tally.sent += len(batch)
        self.tally.lag_s.append(now_s - due_s)
        for arrival in batch:
            self._tenants[arrival.tenant] += 1
            self.scores.sent(arrival.chain, now_s)

    async def _post(self, batch: Sequence[Arrival], watch: Callable[[Tally], None]) -> None:
        content = json.dumps({"arrivals": list(map(_body, batch))}, separators=(",", ":"))
        sent_s = monotonic()
        try:
            answer = await self._client.post("/v1/arrivals", content=content, headers=_JSON)
        except httpx.HTTPError as error:
            self.tally.errors[type(error).__name__] += 1
        else:
            self.tally.latency_s.append(monotonic() - sent_s)
            if answer.status_code == ACCEPTED:
                self.tally.accepted += answer.json()["accepted"]
            else:
                self.tally.errors[f"status {answer.status_code}"] += 1
        finally:
            self._slots.release()
            watch(self.tally)

    async def _compare(self) -> None:
        """Ask for forecasts again and again, of the tenant that sends most."""
        while True:
            await asyncio.sleep(self._pace.compare_s)
            tenant = self._tenants.most_common(1)[0][0] if self._tenants else ""
            query: dict[str, str | int] = {"top": self._pace.top, "tenant": tenant}
            try:
                answer = await self._client.get("/v1/forecasts", params=query)
            except httpx.HTTPError as error:
                self.tally.errors[f"forecasts: {type(error).__name__}"] += 1
                continue
            if answer.status_code == OK:
                self.scores.add(answer.json()["forecasts"], monotonic())
            else:
                self.tally.errors[f"forecasts: status {answer.status_code}"] += 1


def schedule(trace: Iterable[Arrival], pace: Pace) -> Iterator[tuple[float, Arrival]]:
    """Yield when each arrival is due, in seconds from the start, and the arrival.

    >>> trace = [Arrival(at_s, (), 1, 1) for at_s in (7.0, 8.0, 12.0)]
    >>> [due_s for due_s, _ in schedule(trace, Pace(speed=10.0))]
    [0.0, 0.1, 0.5]
    >>> [due_s for due_s, _ in schedule(trace, Pace(rate=4.0))]
    [0.0, 0.25, 0.5]
    """
    first_s: float | None = None
    for number, arrival in enumerate(islice(trace, pace.limit)):
        if first_s is None:
            first_s = arrival.at_s
        due_s = number / pace.rate if pace.rate else (arrival.at_s - first_s) / pace.speed
        yield due_s, arrival


def _body(arrival: Arrival) -> dict[str, Any]:
    """Return the body for `arrival`, without its time, and a prompt's length of at least 1."""
    body: dict[str, Any] = {
        "chain": arrival.chain,
        "block_tokens": arrival.block_tokens,
        "input_tokens": max(1, arrival.input_tokens),
        "output_tokens": arrival.output_tokens,
    }
    for name in ("tenant", "session", "request_id"):
        value = getattr(arrival, name)
        if value:
            body[name] = value
    return body
