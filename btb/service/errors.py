"""What the service answers where it does not do what it was asked.

Refused             a status, and what was wrong, in words for the client
    BadField        422: a field is not what it should be
    Behind          503: too much is waiting already, or the log is still being read
    LogFailed       507: the log can't be written, as when the disk is full
"""

Location = tuple[str | int, ...]


class Refused(Exception):
    """A request that is not done. `cause` is a short name for the metrics, one of a few."""

    def __init__(
        self, status: int, message: str, *, cause: str, at: Location = (), retry_s: int = 0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.cause = cause
        self.at = at
        self.retry_s = retry_s


class BadField(Refused):
    """A field of a body or an address is not what it should be; `at` is the way to it."""

    def __init__(self, message: str, *at: str | int) -> None:
        super().__init__(422, message, cause="invalid", at=at)


class Behind(Refused):
    """Too much waits already. Nothing was done; the same request may be sent again later."""

    def __init__(self, message: str) -> None:
        super().__init__(503, message, cause="behind", retry_s=1)


class LogFailed(Refused):
    """The log could not be written, so what was sent was not taken."""

    def __init__(self, message: str) -> None:
        super().__init__(507, message, cause="log_failed", retry_s=5)
