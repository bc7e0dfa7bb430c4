"""Family `fanout`: one deep prefix, hundreds of requests at once, and decoys that lead nowhere."""

from dataclasses import dataclass

from btb.traces.workloads.base import Context, Draft
from btb.traces.workloads.chance import spread
from btb.traces.workloads.require import require, require_block


@dataclass(frozen=True, slots=True)
class Fanout:
    """Parameters of `fanout`; the defaults are the article's.

    First start, spacing, jitter and the decoys' stretch were read off the article's 15 windows:
    burst i starts at 20 + 40 i s, give or take up to 2 s (the 120 starts lie within -1.97 and
    +1.95 s of that); the decoys are uniform between 14 and 340 s (14.12 to 339.97 s are seen).

    Parameters
    ----------
    duration_s
        End of the last burst's slot, and of the decoys. Slots are (duration - first) / bursts.
    bursts, size, span_s
        Number of bursts, requests in each, and seconds from its first to its last request.
    first_s, jitter_s
        Start of the first slot, and how far a burst's start may lie off its slot's.
    prefix_tokens, suffix_tokens, output_tokens
        Shared part, own part and answer of each request.
    decoys, decoy_repeats, decoy_gap_s
        Prefixes of the same shape that come `decoy_repeats` times, `decoy_gap_s` apart.
    even
        Evenly spaced requests in a burst, as in the article's simulation, in place of Poisson.
    """

    duration_s: float = 340.0
    bursts: int = 8
    size: int = 500
    span_s: float = 60.0
    first_s: float = 20.0
    jitter_s: float = 2.0
    prefix_tokens: int = 65_536
    suffix_tokens: int = 256
    output_tokens: int = 1
    decoys: int = 120
    decoy_repeats: int = 1
    decoy_gap_s: float = 0.5
    even: bool = False

    def __post_init__(self) -> None:
        require(self, positive="duration_s size output_tokens decoy_repeats")
        require(self, not_negative="bursts span_s first_s jitter_s suffix_tokens decoys")
        require(self, not_negative="decoy_gap_s")
        require_block(self, "prefix_tokens")
        if self.first_s >= self.duration_s:
            raise ValueError(f"first_s must be below duration_s, got {self.first_s!r}")


DECOYS_BEFORE_S = 6.0
"""Decoys begin so long before the first burst's slot, as in the article's windows."""


def fanout(parameters: Fanout, draft: Draft) -> None:
    """Add bursts among decoys. The last burst may run on after `duration_s`."""
    slot_s = (parameters.duration_s - parameters.first_s) / max(parameters.bursts, 1)
    for slot in range(parameters.bursts):
        jitter_s = draft.rng.uniform(-parameters.jitter_s, parameters.jitter_s)
        _add_burst(parameters, draft, max(parameters.first_s + slot_s * slot + jitter_s, 0.0))
    from_s = max(parameters.first_s - DECOYS_BEFORE_S, 0.0)
    for at_s in spread(from_s, parameters.duration_s - from_s, parameters.decoys, draft.rng):
        _add_decoy(parameters, draft, at_s)


def _add_burst(parameters: Fanout, draft: Draft, start_s: float) -> None:
    rng = None if parameters.even else draft.rng
    times_s = spread(start_s, parameters.span_s, parameters.size, rng)
    prefix = draft.prompt(parameters.prefix_tokens)
    draft.mark_burst(times_s, prefix, "fanout")
    for at_s in times_s:
        _add_request(parameters, draft, at_s, prefix)


def _add_decoy(parameters: Fanout, draft: Draft, at_s: float) -> None:
    prefix = draft.prompt(parameters.prefix_tokens)
    for repeat in range(parameters.decoy_repeats):
        _add_request(parameters, draft, at_s + repeat * parameters.decoy_gap_s, prefix)


def _add_request(parameters: Fanout, draft: Draft, at_s: float, prefix: Context) -> None:
    prompt = draft.extend(prefix, parameters.suffix_tokens)
    draft.add(at_s, prompt, parameters.output_tokens)
