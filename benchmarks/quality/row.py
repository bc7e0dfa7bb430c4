"""One figure beside what it should be."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Parameters
    ----------
    show
        Which question it answers.
    what
        The trace, the horizon and the like.
    value, unit
        What was measured.
    target
        What it should be, in words; empty where it stands there for comparison only.
    met
        Whether it is; None without a target.
    """

    show: str
    what: str
    value: float
    unit: str = ""
    target: str = ""
    met: bool | None = None


def at_least(show: str, what: str, value: float, least: float, unit: str = "") -> Row:
    """Return a row whose value should be at least `least`."""
    return Row(show, what, value, unit, f">= {least:g}", value >= least)


def at_most(show: str, what: str, value: float, most: float, unit: str = "") -> Row:
    """Return a row whose value should be at most `most`."""
    return Row(show, what, value, unit, f"<= {most:g}", value <= most)
