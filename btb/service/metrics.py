"""What Prometheus is told: one registry, few labels, never a prefix or a tenant among them."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

MAX_REASONS = 32
"""Reasons of decisions told apart; the ones after them are counted as `other`."""

DECISION_S = (50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1.6e-3, 3.2e-3, 6.4e-3, 12.8e-3, 0.05, 0.25)
SYNC_S = (0.2e-3, 0.5e-3, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.25, 1.0)
TTFT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """All counters of one service."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.arrivals = Counter(
            "btb_arrivals", "Arrivals counted, by how they came", ["source"], registry=registry
        )
        self.decisions = Counter(
            "btb_decisions",
            "Requests routed, by reason",
            ["reason"],
            registry=registry,
        )
        self.decision_s = Histogram(
            "btb_decision_seconds",
            "Observing, forecasting and deciding",
            buckets=DECISION_S,
            registry=registry,
        )
        self.forecasts = Counter("btb_forecasts", "Forecasts given out", registry=registry)
        self.fsync_s = Histogram(
            "btb_log_fsync_seconds",
            "Writing and syncing rows",
            buckets=SYNC_S,
            registry=registry,
        )
        self.log_bytes = Counter("btb_log_written_bytes", "Bytes in the log", registry=registry)
        self.rejected = Counter(
            "btb_rejected", "Requests to the service refused", ["cause"], registry=registry
        )
        self.released = Counter(
            "btb_released_requests", "Routed requests let go of", ["cause"], registry=registry
        )
        self.ttft_s = Histogram(
            "btb_ttft_seconds", "Times to first token told", buckets=TTFT_S, registry=registry
        )
        self.prompt_tokens = Counter(
            "btb_prompt_tokens",
            "Tokens of requests whose hits were told",
            ["part"],
            registry=registry,
        )
        self.copies = Counter("btb_copies", "Copies, by state", ["state"], registry=registry)
        self.copies_bytes = Counter(
            "btb_copies_bytes", "Bytes of copies, by state", ["state"], registry=registry
        )
        self._reasons: dict[str, Counter] = {}

    def decided(self, reason: str) -> None:
        """Count a decision under its reason, or under `other` where there are too many."""
        counter = self._reasons.get(reason)
        if counter is None:
            known = len(self._reasons) < MAX_REASONS
            counter = self.decisions.labels(reason[:80] if known else "other")
            if known:
                self._reasons[reason] = counter
        counter.inc()

    def copied(self, state: str, size_bytes: int) -> None:
        """Count a copy that is `ordered` or `done`."""
        self.copies.labels(state).inc()
        self.copies_bytes.labels(state).inc(size_bytes)

    def hit(self, input_tokens: int, predicted_tokens: int, found_tokens: int) -> None:
        """Count the tokens of a prompt: all, those thought to be there, those that were."""
        self.prompt_tokens.labels("all").inc(input_tokens)
        self.prompt_tokens.labels("predicted").inc(predicted_tokens)
        self.prompt_tokens.labels("found").inc(found_tokens)

    def watch(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Show what `read` returns, at each scrape, under `name`."""
        Gauge(name, help_text, registry=self.registry).set_function(read)

    def watch_tallies(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Show the forecaster's tallies."""
        self.registry.register(_Tallies(read))

    def watch_failures(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Show how often the policy failed, by kind."""
        self.registry.register(_Failures(read))


class _Failures(Collector):
    def __init__(self, read: Callable[[], Mapping[str, int]]) -> None:
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield one counter with a value for each kind."""
        help_text = "Decisions that went to the fallback, by kind"
        family = CounterMetricFamily("btb_policy_failures", help_text, labels=["kind"])
        for kind, count in self._read().items():
            family.add_metric([kind], count)
        yield family


class _Tallies(Collector):
    def __init__(self, read: Callable[[], Mapping[str, int]]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one gauge with a value for each tally."""
        family = GaugeMetricFamily(
            "btb_forecaster", "What the forecaster took, holds and let go", labels=["tally"]
        )
        for name, value in self._read().items():
            family.add_metric([name], value)
        yield family
