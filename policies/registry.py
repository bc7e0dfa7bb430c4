"""Policies by name: ours, those of other packages, and any class by its import path."""

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from random import Random
from typing import cast

from policies.article import ArticleCacheAware
from policies.base import Policy
from policies.btb import Btb
from policies.cache_aware import CacheAware
from policies.early_rdma import EarlyRdma
from policies.errors import PolicyError
from policies.fixed import LeastLoad, RandomReplica, RoundRobin
from policies.guarded import Guarded
from policies.kv_cost import KvCost
from policies.llmd_burst import LlmdBurst
from policies.mooncake_heat import MooncakeHeat
from policies.order import Ordered

ENTRY_POINTS = "btb.policies"
"""The entry point group by which another package offers a policy."""

Value = str | int | float | bool


def guarded(
    rng: Random, *, policy: str = "btb", mode: str = "enforce", holdout: float = 0.05
) -> Policy:
    """Any policy, watched: what fails is served all the same, and what doesn't help is stopped."""
    return Guarded(rng, _factory(policy), mode=mode, holdout=holdout)


POLICIES: Mapping[str, Callable[..., Policy]] = {
    "random": RandomReplica,
    "round_robin": RoundRobin,
    "least_load": LeastLoad,
    "cache_aware": CacheAware,
    "kv_cost": KvCost,
    "early_rdma": EarlyRdma,
    "mooncake_heat": MooncakeHeat,
    "llmd_burst": LlmdBurst,
    "btb": Btb,
    "guarded": guarded,
    "ordered_least_load": partial(Ordered, policy=LeastLoad),
    "ordered_cache_aware": partial(Ordered, policy=CacheAware),
    "ordered_early_rdma": partial(Ordered, policy=EarlyRdma),
    "ordered_mooncake_heat": partial(Ordered, policy=MooncakeHeat),
    "ordered_llmd_burst": partial(Ordered, policy=LlmdBurst),
    "article_cache_aware": ArticleCacheAware,
    "article_early_rdma": partial(EarlyRdma, fallback=ArticleCacheAware),
}
"""The policies in the box. One file and one line here make a new one."""


def make_policy(name: str, *, seed: int, **parameters: Value) -> Policy:
    """Return a new policy called `name`, ours, another package's, or the class `module:Class`.

    It is called with a `random.Random` made from `seed`, and with `parameters` by keyword; text is
    turned into the type that the parameter is annotated with.

    Raises
    ------
    PolicyError
        If there is no such policy, or it has no such parameter, or the value is of a wrong type.

    Examples
    --------
    >>> make_policy("earlyrdma", seed=1)
    Traceback (most recent call last):
        ...
    policies.errors.PolicyError: no policy is called 'earlyrdma'; did you mean 'early_rdma'?
    """
    make = _factory(name)
    known = settable_parameters(make)
    for key in parameters:
        if key not in known:
            raise PolicyError(f"policy {name!r} has no parameter {key!r}; {_nearest(key, known)}")
    settings = {key: _typed(name, key, value, known[key]) for key, value in parameters.items()}
    return make(Random(seed), **settings)


def settable_parameters(make: Callable[..., Policy]) -> dict[str, type]:
    """Return the parameters that can be given as text or numbers, with their types."""
    found = inspect.signature(make, eval_str=True).parameters.values()
    return {p.name: p.annotation for p in found if p.annotation in (int, float, bool, str)}


def _factory(name: str) -> Callable[..., Policy]:
    if name in POLICIES:
        return POLICIES[name]
    offered = entry_points(group=ENTRY_POINTS)
    if name in offered.names:
        return cast(Callable[..., Policy], offered[name].load())
    if ":" in name:
        return _imported(name)
    known = dict.fromkeys([*POLICIES, *offered.names])
    raise PolicyError(f"no policy is called {name!r}; {_nearest(name, known)}")


def _imported(path: str) -> Callable[..., Policy]:
    module, _, attribute = path.partition(":")
    try:
        return cast(Callable[..., Policy], getattr(import_module(module), attribute))
    except ImportError as error:
        raise PolicyError(f"policy {path!r}: can't import {module!r}: {error}") from error
    except AttributeError as error:
        raise PolicyError(f"policy {path!r}: {module!r} has no {attribute!r}") from error


def _nearest(word: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(sorted(known))}" if known else "it has none"


def _typed(name: str, key: str, value: Value, kind: type) -> Value:
    if kind is bool and isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise PolicyError(f"policy {name!r}: {key} must be true or false, got {value!r}")
        return value.lower() == "true"
    try:
        return cast(Value, kind(value))
    except ValueError:
        raise PolicyError(
            f"policy {name!r}: {key} must be {kind.__name__}, got {value!r}"
        ) from None
