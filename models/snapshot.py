"""Features as of one moment, and what learners make of them, made once."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from models.base import Features

Made = TypeVar("Made")


class Snapshot(dict[str, float]):
    """Features that will not change any more, with room for what is made of them.

    Experts at several horizons take the same logarithms of the same features, now to forecast and
    later to learn. Nothing tells when a value is set anew: what was made before would be kept.

    Parameters
    ----------
    values
        Features by name.

    Attributes
    ----------
    made
        What `recall` has kept, by what made it.
    """

    __slots__ = ("made",)

    def __init__(self, values: Iterable[tuple[str, float]]) -> None:
        super().__init__(values)
        self.made: dict[Callable[..., Any], Any] = {}


def recall(x: Features, make: Callable[[Features], Made]) -> Made:
    """Return `make(x)`, which is kept where `x` is a `Snapshot`: it has to be the same each time.

    >>> x = Snapshot([("age_s", 3.0)])
    >>> recall(x, len), recall({"age_s": 3.0}, len), x.made
    (1, 1, {<built-in function len>: 1})
    """
    if not isinstance(x, Snapshot):
        return make(x)
    made: Made | None = x.made.get(make)
    if made is None:
        made = x.made[make] = make(x)
    return made
