"""Family `ramp`: the rate of one shared prefix rises slowly, so there is time to see it coming."""

from dataclasses import dataclass

from btb.traces.workloads.base import Draft
from btb.traces.workloads.chance import thinned, tokens_around
from btb.traces.workloads.ordinary import SIGMA, Ordinary, ordinary
from btb.traces.workloads.require import require, require_block


@dataclass(frozen=True, slots=True)
class Ramp:
    """Parameters of `ramp`.

    The window has `ramps` slots of equal length. In each, one prefix of its own starts at
    `first_s` into the slot: its rate rises as a straight line from 0 to `peak_rps` in `rise_s`,
    stays there for `hold_s`, and ends at once.

    Parameters
    ----------
    duration_s
        Length of the window.
    ramps
        Prefixes that ramp up, one after the other.
    first_s, rise_s, hold_s, peak_rps
        Shape of a ramp.
    prefix_tokens
        Shared part.
    suffix_tokens, output_tokens
        Median own part and median answer (lognormal, sigma 0.8).
    background_chats_per_s
        Conversations of family `ordinary` that begin in a second beside it.
    """

    duration_s: float = 900.0
    ramps: int = 1
    first_s: float = 60.0
    rise_s: float = 600.0
    hold_s: float = 180.0
    peak_rps: float = 2.0
    prefix_tokens: int = 16_384
    suffix_tokens: int = 200
    output_tokens: int = 100
    background_chats_per_s: float = 0.2

    def __post_init__(self) -> None:
        require(self, positive="duration_s ramps rise_s peak_rps suffix_tokens output_tokens")
        require(self, not_negative="first_s hold_s background_chats_per_s")
        require_block(self, "prefix_tokens")


def ramp(parameters: Ramp, draft: Draft) -> None:
    """Add ramps over ordinary traffic."""
    draft.end_s = parameters.duration_s
    slot_s = parameters.duration_s / parameters.ramps
    for slot in range(parameters.ramps):
        _add_ramp(parameters, draft, slot * slot_s + parameters.first_s)
    background = Ordinary(
        duration_s=parameters.duration_s, chats_per_s=parameters.background_chats_per_s
    )
    ordinary(background, draft)


def _add_ramp(parameters: Ramp, draft: Draft, start_s: float) -> None:
    def rate_rps(at_s: float) -> float:
        return parameters.peak_rps * min((at_s - start_s) / parameters.rise_s, 1.0)

    rng = draft.rng
    end_s = start_s + parameters.rise_s + parameters.hold_s
    times_s = list(thinned(rate_rps, parameters.peak_rps, start_s, end_s, rng))
    prefix = draft.prompt(parameters.prefix_tokens)
    draft.mark_burst(times_s, prefix, "ramp")
    for at_s in times_s:
        prompt = draft.extend(prefix, tokens_around(parameters.suffix_tokens, SIGMA, rng))
        draft.add(at_s, prompt, tokens_around(parameters.output_tokens, SIGMA, rng))
