"""The service's one clock: seconds since its log began, never going back."""

from collections.abc import Callable
from time import monotonic, time  # noqa: TID251  (the service is where clocks are read)

__all__ = ["Clock", "unix_s"]

unix_s: Callable[[], float] = time
"""Seconds since 1970 by the machine's wall clock."""


class Clock:
    """Seconds since `origin_unix_s`, by the monotonic clock once it has started.

    The wall clock is read once, so that a log goes on where it ended before a restart.
    """

    def __init__(self, origin_unix_s: float) -> None:
        self.origin_unix_s = origin_unix_s
        self._start_s = max(0.0, unix_s() - origin_unix_s) - monotonic()

    def catch_up(self, at_s: float) -> None:
        """Go on from `at_s` if that is later: the wall clock may have been set back meanwhile."""
        self._start_s = max(self._start_s, at_s - monotonic())

    def now_s(self) -> float:
        """Return the time of this moment."""
        return self._start_s + monotonic()
