"""`btb new-policy`: a policy of one's own to start from, and its test."""

from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Annotated

import typer
from rich.console import Console

from btb.errors import ConfigError
from policies import POLICIES

POLICY = Template('''\
"""$class_name: say here in a line what it does."""

from collections.abc import Sequence
from random import Random

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies.base import ClusterView, Decision
from policies.fixed import FixedRule
from policies.ranking import first_by, ranked


class $class_name(FixedRule):
    """The replica that is expected to be done with a prompt first; nothing is copied.

    `FixedRule` ignores what came of its decisions. Name forecasts in `horizons_s`, such as
    (15.0,), and `forecasts` has them.

    Parameters
    ----------
    load_price_s
        Seconds that each request on a replica counts, beside its queue.
    """

    horizons_s: tuple[float, ...] = ()

    def __init__(self, rng: Random, *, load_price_s: float = 0.01) -> None:
        self._rng = rng
        self._load_price_s = load_price_s

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return the replicas by rising time to the first token."""
        costs_s = []
        held = cluster.resident_blocks(arrival.chain)
        for queue_s, load, blocks in zip(cluster.queue_s(), cluster.loads(), held, strict=True):
            there = min(blocks * arrival.block_tokens, arrival.input_tokens - 1)
            work_s = cluster.prefill_s(arrival.input_tokens - there, there)
            costs_s.append(queue_s + work_s + self._load_price_s * load)
        first = first_by(costs_s, self._rng)
        return Decision(ranked(cluster.replicas, costs_s, first), reason="done first")
''')

TEST = Template('''\
"""What every policy has to do right, and what this one does."""

from collections.abc import Callable
from random import Random

import pytest
from $name import $class_name

from forecasting.arrival import Arrival
from policies.checks import CHECKS, Make
from policies.still import StillCluster


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_is_a_policy(check: Callable[[Make], None]) -> None:
    check($class_name)


def test_a_prompt_goes_where_its_kv_is_unless_the_queue_there_is_longer() -> None:
    # A token takes 1 ms: r1 holds 20 of 30 blocks of 16 tokens, which saves 0.32 s.
    prompt = Arrival(0.0, tuple(range(30)), block_tokens=16, input_tokens=480)
    policy = $class_name(Random(1))
    for queue_s, expected in ((0.3, "r1"), (0.4, "r0")):
        cluster = StillCluster([0, 0], queue=[0.0, queue_s], resident=[0, 20])
        assert policy.decide(prompt, (), cluster, 0.0).ranked[0] == expected
''')


def new_policy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as my_policy.")],
    to: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path(),
) -> None:
    """Write a policy, NAME.py, and its test, test_NAME.py, which passes.

    docs/cookbook.md goes on from there. A file that exists is left alone.

    For example:

    btb new-policy my_policy

    btb compare trace.jsonl --policy cache_aware --policy my_policy:MyPolicy
    """
    _check(name)
    class_name = "".join(word.capitalize() for word in name.split("_"))
    texts = {
        to / f"{name}.py": POLICY.substitute(class_name=class_name),
        to / f"test_{name}.py": TEST.substitute(class_name=class_name, name=name),
    }
    for path in texts:
        if path.exists():
            raise ConfigError(f"{path} is there already; choose another name, or --to DIR")
    try:
        to.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--to {to}: {error.strerror}") from error
    for line in (
        f"wrote {' and '.join(str(path) for path in texts)}; from {to.resolve()}:",
        f"  python -m pytest test_{name}.py",
        f"  btb compare TRACE --policy cache_aware --policy {name}:{class_name}",
    ):
        Console().print(line, highlight=False, markup=False, soft_wrap=True)


def _check(name: str) -> None:
    fit = name.isascii() and name.isidentifier() and name == name.lower() and not iskeyword(name)
    if not fit or not name.strip("_") or name.startswith("_"):
        raise ConfigError(f"{name!r} must be a lower case name such as my_policy")
    if name in POLICIES:
        raise ConfigError(f"a policy is called {name!r} already; choose another name")
    try:
        taken = find_spec(name) is not None
    except (ImportError, ValueError):
        taken = True
    if taken:
        raise ConfigError(f"a Python module is called {name!r} already; choose another name")
