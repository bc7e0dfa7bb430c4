"""What was met while a trace was read."""

from dataclasses import dataclass, field

SHOWN_BAD = 5
"""Bad rows that are kept to be shown."""


@dataclass(slots=True)
class ReadReport:
    """Counts of one pass over a trace, which may have stopped early.

    `rows` are the requests handed out. `bad` rows could not be read and are left out; `first_bad`
    shows some as "file:line: field: what was expected". `reordered` rows came out of time order and
    were sorted in, `late` ones came so late that they are left out. `tick_s` is the grain of the
    trace's clock where it has a visible one. `notes` are sentences for a person.
    """

    rows: int = 0
    bad: int = 0
    first_bad: list[str] = field(default_factory=list)
    reordered: int = 0
    late: int = 0
    tick_s: float | None = None
    notes: list[str] = field(default_factory=list)

    def add_bad(self, what: str) -> None:
        """Count a bad row; `what` says where it is and what was expected."""
        self.bad += 1
        if len(self.first_bad) < SHOWN_BAD:
            self.first_bad.append(what)
