"""Hears what came of routed requests and ordered copies."""

from btb.service.answers import OutcomeAnswer
from btb.service.bodies import OutcomeBody
from btb.service.decider import Decider
from btb.service.errors import Refused
from btb.service.intake import one_tenant
from btb.service.parts import Parts
from btb.service.records import outcome_line
from btb.service.replica import Placement
from policies.base import Feedback


class Outcomes:
    """Corrects the cluster by what is measured, tells the policy, and frees what has ended."""

    def __init__(self, parts: Parts, decider: Decider) -> None:
        self._parts = parts
        self._decider = decider

    def take(self, body: OutcomeBody, header_tenant: str) -> OutcomeAnswer:
        """Return what was done with an outcome.

        Raises
        ------
        Refused
            If no such request is under way. Nothing is done then.
        """
        parts = self._parts
        key = (one_tenant(body.tenant, header_tenant), body.request_id)
        placement = parts.outstanding.find(key) if body.request_id else None
        if placement is None and (body.request_id or not body.copies_done):
            message = "no request of this tenant has this id and is under way"
            raise Refused(404, message, cause="not_found", at=("body", "request_id"))
        now_s = parts.clock.now_s()
        unknown = [one for one in body.copies_done if not self._copied(one, now_s)]
        if placement is not None:
            replica = body.replica or placement.replica.name
            line = outcome_line(body, at_s=now_s, tenant=key[0], replica=replica)
            parts.log.note(line)
            self._learn(body, placement, replica, now_s)
            if body.finished:
                parts.outstanding.release(key, "finished")
        return OutcomeAnswer(
            released=placement is not None and body.finished,
            copies_done=len(body.copies_done) - len(unknown),
            unknown_copies=unknown,
        )

    def _learn(self, body: OutcomeBody, placement: Placement, replica: str, now_s: float) -> None:
        if body.ttft_s is None or placement.answered:
            return
        metrics, hit_tokens = self._parts.metrics, placement.hit_tokens
        first_s = min(now_s, placement.placed_s + body.ttft_s)
        self._parts.cluster.first_token(placement, first_s, replica)
        metrics.ttft_s.observe(body.ttft_s)
        if body.hit_tokens is not None:
            metrics.hit(placement.input_tokens, hit_tokens, body.hit_tokens)
            hit_tokens = body.hit_tokens
        self._decider.learn(Feedback(placement.number, replica, body.ttft_s, hit_tokens))

    def _copied(self, copy_id: str, now_s: float) -> bool:
        order = self._parts.cluster.copy_done(copy_id, now_s)
        if order is not None:
            self._parts.metrics.copied("done", order.copy.size_bytes)
        return order is not None
