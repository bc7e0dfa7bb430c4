"""What an audit found. `as_json` of it is what `btb audit --json` writes."""

from dataclasses import asdict, dataclass
from math import isinf
from typing import Any

from btb.traces.audit.onsets import Onsets
from btb.traces.audit.pairs import Pairs
from btb.traces.audit.reuse import Reuse


@dataclass(frozen=True, slots=True)
class WindowFound:
    """Fan-out of one depth within one window, see `FanOut`.

    A `window_s` of 0 counts arrivals at one time. It stands for one step of the clock, where that
    ticks and a window shorter than a step was asked for.
    """

    window_s: float
    largest: int
    events_8: int
    prefixes_8: int
    events_20: int
    prefixes_20: int


@dataclass(frozen=True, slots=True)
class DepthFound:
    """What was found at one depth. `asked_tokens` was rounded up to whole blocks.

    `requests` are those with a prompt of at least that many tokens.
    """

    depth_tokens: int
    asked_tokens: int
    requests: int
    windows: tuple[WindowFound, ...]
    pairs: Pairs
    onsets: Onsets | None


@dataclass(frozen=True, slots=True)
class Audit:
    """All figures of one trace, or of the windows of one folder together.

    `peaks` maps a window in seconds to the largest number of arrivals of any prefix in it.
    `tick_s` is the step of the clock, where it has a visible one. `pays` is None where nothing can
    be said, and `verdict` says why in one sentence.
    """

    name: str
    traces: int
    requests: int
    input_tokens: int
    span_s: float
    block_tokens: int
    has_prefixes: bool
    tick_s: float | None
    peaks: dict[float, int]
    depths: tuple[DepthFound, ...]
    reuse: Reuse | None
    pays: bool | None
    verdict: str
    notes: tuple[str, ...]

    @property
    def arrivals_per_s(self) -> float:
        """Mean rate; 0 where all arrivals are at one time."""
        return self.requests / self.span_s if self.span_s > 0.0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values; an infinite age is called "any"."""
        plain = asdict(self)
        plain["arrivals_per_s"] = self.arrivals_per_s
        plain["peaks"] = {f"{window_s:g}": count for window_s, count in self.peaks.items()}
        if self.reuse is not None:
            shares = {
                "any" if isinf(age_s) else f"{age_s:g}": tokens / max(self.input_tokens, 1)
                for age_s, tokens in self.reuse.tokens.items()
            }
            del plain["reuse"]["tokens"]
            plain["reuse"]["share_of_input_tokens"] = shares
        return plain
