"""Routes requests, in the event loop's thread: nothing is awaited between looking and counting."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from secrets import token_hex

from btb.service.answers import (
    CopyAnswer,
    ForecastAnswer,
    RankedAnswer,
    RouteAnswer,
    copy_answer,
    forecast_answer,
)
from btb.service.bodies import RouteBody
from btb.service.decider import Decider
from btb.service.errors import Refused
from btb.service.intake import make_arrival, one_tenant
from btb.service.orders import Order
from btb.service.parts import Parts
from btb.service.records import arrival_line
from btb.service.view import LiveView
from forecasting.arrival import Arrival
from policies.base import Copy, Decision


class Router:
    """Says where requests go, and counts them there."""

    def __init__(self, parts: Parts, decider: Decider) -> None:
        self._parts = parts
        self._decider = decider
        self._numbers = count(1)
        self._start = token_hex(4)  # so that a restart doesn't give out the same ids again

    def route(self, body: RouteBody, header_tenant: str) -> RouteAnswer:
        """Return where a request goes; unless it is a dry run, it counts as come and as sent there.

        Raises
        ------
        Refused
            If the body is bad or there is no replica.
        """
        parts = self._parts
        tenant = one_tenant(body.tenant, header_tenant)
        if not len(parts.cluster):
            message = "no replica is known; PUT /v1/replicas/NAME adds one"
            raise Refused(503, message, cause="no_replica", retry_s=1)
        now_s = parts.clock.now_s()
        given = make_arrival(body, tenant, now_s, parts.limits)
        number = str(next(self._numbers))
        if not given.request_id:
            given = replace(given, request_id=f"btb-{self._start}-{number}")
        # Inside a request goes by its number: ids of two tenants may be the same.
        chain = parts.tenants.tagged(given.chain, tenant)
        arrival = replace(given, chain=chain, request_id=number)
        view = parts.cluster.view(now_s, arrival.block_tokens)
        if body.dry_run:
            return self._try_out(body, given, arrival, view)
        return self._send(body, given, arrival, view)

    def _try_out(
        self, body: RouteBody, given: Arrival, arrival: Arrival, view: LiveView
    ) -> RouteAnswer:
        decision = self._decider.try_out(arrival, view)
        return RouteAnswer(
            request_id=given.request_id,
            at_s=given.at_s,
            replicas=_ranked(arrival, decision, view),
            priority=decision.priority,
            reason=decision.reason,
            copies=[],
            forecasts=self._forecasts(body, arrival),
            dry_run=True,
        )

    def _send(
        self, body: RouteBody, given: Arrival, arrival: Arrival, view: LiveView
    ) -> RouteAnswer:
        parts, now_s = self._parts, given.at_s
        decision = self._decider.decide(arrival, view)
        ranked = _ranked(arrival, decision, view)  # before this request counts itself
        placement = parts.cluster.place(arrival, decision.ranked[0], now_s)
        parts.outstanding.add((given.tenant, given.request_id), placement)
        copies = self._own(decision.copies, given.tenant)
        orders = parts.cluster.orders.place(copies, now_s, arrival.block_tokens)
        parts.log.note(arrival_line(given))
        return RouteAnswer(
            request_id=given.request_id,
            at_s=now_s,
            replicas=ranked,
            expected_ttft_s=placement.ready_s - now_s,
            priority=decision.priority,
            reason=decision.reason,
            copies=self._copies(orders, given.tenant),
            forecasts=self._forecasts(body, arrival),
            dry_run=False,
        )

    def _own(self, copies: Sequence[Copy], tenant: str) -> list[Copy]:
        """Return the copies that the tenant may hear of: those of its own prefixes."""
        untagged = self._parts.tenants.untagged
        own = [copy for copy in copies if untagged(copy.prefix.key, tenant) is not None]
        self._parts.metrics.copies.labels("withheld").inc(len(copies) - len(own))
        return own

    def _copies(self, orders: Sequence[Order], tenant: str) -> list[CopyAnswer]:
        found = []
        for order in orders:
            self._parts.metrics.copied("ordered", order.copy.size_bytes)
            prefix = self._parts.tenants.untagged(order.copy.prefix.key, tenant)
            assert prefix is not None
            found.append(copy_answer(order, prefix))
        return found

    def _forecasts(self, body: RouteBody, arrival: Arrival) -> list[ForecastAnswer]:
        if not body.forecast:
            return []
        parts, found = self._parts, []
        for one in self._decider.forecasts or parts.forecaster.forecast_path(arrival):
            prefix = parts.tenants.untagged(one.prefix.key, arrival.tenant)
            if prefix is not None:
                found.append(forecast_answer(one, prefix))
        parts.metrics.forecasts.inc(len(found))
        return found


def _ranked(arrival: Arrival, decision: Decision, view: LiveView) -> list[RankedAnswer]:
    by_name = {
        name: RankedAnswer(replica=name, requests=requests, queue_s=queue_s, resident_blocks=blocks)
        for name, requests, queue_s, blocks in zip(
            view.replicas,
            view.loads(),
            view.queue_s(),
            view.resident_blocks(arrival.chain),
            strict=True,
        )
    }
    return [by_name[name] for name in decision.ranked]
