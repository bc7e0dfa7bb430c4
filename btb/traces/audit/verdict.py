"""One sentence on whether copying prefixes ahead of bursts would help on a trace."""

from collections.abc import Sequence

from btb.traces.audit.onsets import Thresholds
from btb.traces.audit.result import DepthFound

NO_PREFIXES = (
    "Nothing can be said about btb: the trace does not tell which requests share a prefix, so "
    "there are only rates here."
)

HARDLY = "Copying ahead of bursts would hardly pay here: "

ROUTING = "; what btb gains by routing, btb compare tells."


def judge(depths: Sequence[DepthFound], input_tokens: int, limits: Thresholds) -> tuple[bool, str]:
    """Return whether btb would pay, and why, from what was found at each depth.

    It pays where bursts from cold are there at some depth, and the prefix tokens in them (all
    requests of a burst but its first) are at least `limits.share` of all input tokens. The depth
    with most such tokens is named. See `Thresholds` for what a burst from cold is.
    """
    what = f"{limits.arrivals} or more requests in {limits.within_s:g} s"
    tried = [depth for depth in depths if depth.onsets is not None]
    best = max(tried, key=_tokens, default=None)
    if best is None or best.onsets is None or not any(map(_any_burst, tried)):
        return False, (
            f"{HARDLY}no prefix of {limits.prefix_tokens:,} tokens or more has {what}{ROUTING}"
        )
    share = best.onsets.tokens / max(input_tokens, 1)
    cold = best.onsets.cold
    if cold and share >= limits.share:
        return True, (
            f"btb would pay here: {_times(cold)} a prefix of at least {best.depth_tokens:,} tokens "
            f"goes from silence to {what}. Repeats of such a prefix are "
            f"{best.onsets.tokens:,} tokens of prefill, {share:.1%} of all input, that copies made "
            "in time can serve."
        )
    if cold:
        return False, (
            f"{HARDLY}{_times(cold)} a prefix of at least "
            f"{best.depth_tokens:,} tokens goes from silence to {what}, but only {share:.2%} of "
            f"all input tokens are repeats of such a prefix{ROUTING}"
        )
    return False, _warm(tried, what)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _warm(tried: Sequence[DepthFound], what: str) -> str:
    first = tried[0]
    running = sum(depth.onsets.running for depth in tried[:1] if depth.onsets)
    if running:
        return (
            f"{HARDLY}prefixes of at least {first.depth_tokens:,} tokens with "
            f"{what} were busy from the start, so a cache keeps them without a forecast{ROUTING}"
        )
    return (
        f"{HARDLY}prefixes of at least {first.depth_tokens:,} tokens with "
        f"{what} come from one or a few sessions, one step after the other{ROUTING}"
    )


def _tokens(depth: DepthFound) -> int:
    return depth.onsets.tokens if depth.onsets else 0


def _any_burst(depth: DepthFound) -> bool:
    found = depth.onsets
    return found is not None and found.cold + found.running + found.serial > 0
