"""What Prometheus is told of the models: which they are, and how the challenger does."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from btb.registry import CHALLENGER
from btb.service.keeper import ROLES, ModelKeeper
from btb.training import CHAMPION


class ModelMetrics(Collector):
    """Reads the keeper at each scrape."""

    def __init__(self, keeper: ModelKeeper) -> None:
        self._keeper = keeper

    def collect(self) -> Iterator[Metric]:
        """Yield all families; those of the shadow without a value where there is none."""
        keeper = self._keeper
        present = GaugeMetricFamily(
            "btb_model", "1 for what is in place", labels=["role", "source"]
        )
        for role, one in keeper.loaded.items():
            present.add_metric([role, one.exact], 1.0)
        loads = CounterMetricFamily(
            "btb_model_loads", "New models, taken or refused", labels=["role", "result"]
        )
        for role in ROLES:
            for result in ("taken", "refused"):
                loads.add_metric([role, result], keeper.loads[role, result])
        yield from (present, loads)
        yield from self._shadow()

    def _shadow(self) -> Iterator[Metric]:
        deviance = GaugeMetricFamily(
            "btb_shadow_deviance",
            "Mean Poisson deviance over the same samples",
            labels=["role", "horizon_s"],
        )
        labels = GaugeMetricFamily(
            "btb_shadow_labels", "Samples that both were scored on", labels=["horizon_s"]
        )
        stride = GaugeMetricFamily("btb_shadow_stride", "One in so many samples is taken")
        shadow = self._keeper.stage.shadow
        if shadow is not None:
            stride.add_metric([], shadow.stride)
            for horizon_s, contest in shadow.contests.items():
                sums = contest.sums()
                if len(sums):
                    count, champion, challenger = sums.sum(axis=0)
                    at = f"{horizon_s:g}"
                    labels.add_metric([at], count)
                    deviance.add_metric([CHAMPION, at], champion / count)
                    deviance.add_metric([CHALLENGER, at], challenger / count)
        yield from (deviance, labels, stride)
