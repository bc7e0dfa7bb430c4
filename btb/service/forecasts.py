"""Gives out forecasts: to each tenant of its own prefixes only, named as it names them."""

from btb.service.answers import ForecastAnswer, ForecastsAnswer, forecast_answer
from btb.service.errors import BadField, Refused
from btb.service.hashes import parse_hash
from btb.service.parts import Parts

WIDER = 8
"""Where several tenants are active, so many times more prefixes are looked at."""


class Forecasts:
    """What `GET /v1/forecasts` answers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def top(self, top: int, tenant: str) -> ForecastsAnswer:
        """Return forecasts for the tenant's hottest prefixes, hottest first, at most `top`.

        They are looked for among the `8 * top` hottest of all tenants together.

        Raises
        ------
        Refused
            If `top` is more than the limit.
        """
        parts = self._parts
        if not 1 <= top <= parts.limits.top:
            raise BadField(f"must be 1 to {parts.limits.top}", "query", "top")
        now_s = parts.clock.now_s()
        found = self._own(now_s, top, tenant)
        if len(found) < top:
            found = self._own(now_s, WIDER * top, tenant)[:top]
        parts.metrics.forecasts.inc(len(found))
        return ForecastsAnswer(at_s=now_s, tenant=tenant, forecasts=found)

    def one(self, prefix: str, tenant: str) -> ForecastAnswer:
        """Return the forecast for the prefix whose last block has the hash `prefix`.

        Raises
        ------
        Refused
            If that is no hash, or no prefix of this tenant that is known.
        """
        parts = self._parts
        block = parse_hash(prefix)
        if block is None:
            message = "expected a 64-bit hash, decimal or like 0x1f"
            raise BadField(message, "path", "prefix")
        forecast = parts.forecaster.forecast(parts.tenants.tag(tenant) | block, parts.clock.now_s())
        if forecast is None:
            message = "no prefix of this tenant has this hash and is known"
            raise Refused(404, message, cause="not_found", at=("path", "prefix"))
        parts.metrics.forecasts.inc()
        key = parts.tenants.untagged(forecast.prefix.key, tenant)
        assert key is not None
        return forecast_answer(forecast, key)

    def _own(self, now_s: float, top: int, tenant: str) -> list[ForecastAnswer]:
        parts, found = self._parts, []
        for one in parts.forecaster.hottest(now_s, top):
            prefix = parts.tenants.untagged(one.prefix.key, tenant)
            if prefix is not None:
                found.append(forecast_answer(one, prefix))
        return found
