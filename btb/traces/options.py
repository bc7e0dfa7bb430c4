"""What a person may choose about how a trace is read."""

from dataclasses import dataclass

from btb.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Choices for reading a trace; the defaults suit every format.

    Parameters
    ----------
    max_bad_share
        Share of rows, 0 to 1, that may be bad or too late before reading stops.
    sort_window_s
        Rows may come this many seconds of trace time out of order and are still put right. None
        leaves it to the format: a log written when requests end needs more than one of arrivals.
    block_tokens
        Tokens in a block where the trace does not say, and the size that text is cut into. None
        leaves it to the format.
    start_spread_s, seed
        Sessions without a clock of their own start at a uniform random time within
        `start_spread_s` seconds, drawn from `seed` and the session's name.
    drop_copies
        Leave out sessions that are exact copies of an earlier one.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    max_bad_share: float = 0.01
    sort_window_s: float | None = None
    block_tokens: int | None = None
    start_spread_s: float = 3600.0
    seed: int = 0
    drop_copies: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.max_bad_share <= 1.0:
            raise ConfigError(f"max_bad_share must be from 0 to 1, got {self.max_bad_share!r}")
        if self.sort_window_s is not None and not self.sort_window_s >= 0.0:
            raise ConfigError(f"sort_window_s must not be negative, got {self.sort_window_s!r}")
        if self.block_tokens is not None and self.block_tokens < 1:
            raise ConfigError(f"block_tokens must be 1 or more, got {self.block_tokens!r}")
        if not 0.0 <= self.start_spread_s < float("inf"):
            raise ConfigError(f"start_spread_s must be 0 or more, got {self.start_spread_s!r}")
