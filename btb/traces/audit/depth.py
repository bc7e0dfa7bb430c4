"""All that is counted at one depth."""

from collections.abc import Sequence

from btb.traces.audit.fan_out import FanOut
from btb.traces.audit.onsets import OnsetCounter, Thresholds
from btb.traces.audit.pairs import PairCounter
from btb.traces.audit.result import DepthFound, WindowFound
from forecasting.arrival import Arrival


class DepthCounter:
    """Counts the requests that share their first `asked_tokens`, rounded up to whole blocks.

    Only requests with a prompt of at least that many tokens count. Bursts from cold are followed
    where the depth is at least `limits.prefix_tokens`.
    """

    def __init__(
        self,
        asked_tokens: int,
        block_tokens: int,
        windows_s: Sequence[float],
        limits: Thresholds,
    ) -> None:
        self._asked_tokens = asked_tokens
        self._block_tokens = block_tokens
        self._blocks = -(-asked_tokens // block_tokens)
        self._requests = 0
        self._fan_outs = [FanOut(window_s) for window_s in windows_s]
        self._pairs = PairCounter()
        deep = self.tokens >= limits.prefix_tokens
        self._onsets = OnsetCounter(limits) if deep else None

    @property
    def tokens(self) -> int:
        """Tokens of the depth, in whole blocks."""
        return self._blocks * self._block_tokens

    def add(self, arrival: Arrival) -> None:
        """Take in the next arrival of a trace."""
        if arrival.input_tokens < self.tokens or len(arrival.chain) < self._blocks:
            return
        self._requests += 1
        key = arrival.chain[self._blocks - 1]
        for fan_out in self._fan_outs:
            fan_out.add(key, arrival.at_s)
        self._pairs.add(key, arrival.at_s)
        if self._onsets is not None:
            self._onsets.add(key, arrival)

    def end_trace(self, end_s: float) -> None:
        """Close a trace whose last arrival was at `end_s`."""
        for fan_out in self._fan_outs:
            fan_out.end_trace()
        self._pairs.end_trace(end_s)
        if self._onsets is not None:
            self._onsets.end_trace(self._block_tokens)

    def found(self, windows_s: Sequence[float]) -> DepthFound:
        """Return what was counted, for the windows in `windows_s` only."""
        windows = tuple(
            WindowFound(
                window_s=one.window_s,
                largest=one.largest,
                events_8=one.events[8],
                prefixes_8=one.prefixes[8],
                events_20=one.events[20],
                prefixes_20=one.prefixes[20],
            )
            for one in self._fan_outs
            if one.window_s in windows_s
        )
        return DepthFound(
            depth_tokens=self.tokens,
            asked_tokens=self._asked_tokens,
            requests=self._requests,
            windows=windows,
            pairs=self._pairs.found,
            onsets=self._onsets.found if self._onsets else None,
        )
