"""What Prometheus is told of a replica's blocks and copies; no prefix, tenant or peer among it."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from btb.errors import UserError

if TYPE_CHECKING:
    from replication.agent import Agent
    from replication.control.messages import Listing
    from replication.result import Result

COPY_S = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
ANSWER_S = 5.0
"""How long a scrape waits for the agent's event loop."""


class AgentMetrics:
    """Counts the copies into one agent's pool."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.copies = Counter(
            "btb_agent_copies",
            "Copies that ended: whole, or why not",
            ["result"],
            registry=registry,
        )
        self.copy_bytes = Counter(
            "btb_agent_copy_bytes",
            "Bytes in place, and bytes read and thrown away",
            ["part"],
            registry=registry,
        )
        self.retries = Counter(
            "btb_agent_copy_retries", "Tries because an earlier one failed", registry=registry
        )
        self.copy_s = Histogram(
            "btb_agent_copy_seconds",
            "From the order to the end of a copy",
            buckets=COPY_S,
            registry=registry,
        )

    def count(self, result: "Result") -> None:
        """Take in what came of a copy."""
        self.copies.labels("whole" if result.error is None else type(result.error).__name__).inc()
        self.copy_bytes.labels("moved").inc(result.moved_bytes)
        self.copy_bytes.labels("wasted").inc(result.wasted_bytes)
        self.retries.inc(result.retries)
        self.copy_s.observe(result.took_s)

    def serve(self, port: int, agent: "Agent") -> None:
        """Answer scrapes on a port of loopback, of `agent`, which this event loop runs.

        Raises
        ------
        UserError
            If the port can't be had.
        """
        self.registry.register(_Pool(agent, asyncio.get_running_loop()))
        try:
            start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except OSError as error:
            raise UserError(f"--metrics-port: can't listen on {port}: {error.strerror}") from error


class _Pool(Collector):
    """Reads the pool in the event loop, since scrapes come in threads of their own."""

    def __init__(self, agent: "Agent", loop: asyncio.AbstractEventLoop) -> None:
        self._agent = agent
        self._loop = loop

    def collect(self) -> Iterator[GaugeMetricFamily]:
        async def look() -> "Listing":
            return self._agent.listing()

        here = asyncio.run_coroutine_threadsafe(look(), self._loop).result(ANSWER_S)
        slots = GaugeMetricFamily("btb_agent_slots", "Blocks' places", labels=["state"])
        for state, count in here.slots.items():
            slots.add_metric([state], count)
        yield slots
        yield GaugeMetricFamily("btb_agent_leases", "Leases that stand", here.leases)
        yield GaugeMetricFamily("btb_agent_copies_under_way", "Copies under way", here.copies)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return nothing: the loop can't be asked while it registers this."""
        return iter(())
