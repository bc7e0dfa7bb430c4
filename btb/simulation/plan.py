"""What is to be compared, and the cells that this makes: every name is checked here."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path

from btb.errors import ConfigError
from btb.simulation import clairvoyant
from btb.simulation.cells import Cell
from btb.simulation.engines import ENGINES
from btb.simulation.parameters import USUAL, CausalParameters
from btb.simulation.setups import SETUPS
from btb.traces import ReaderOptions, Trace, open_windows
from btb.tracking import load_checkpoint
from forecasting.forecaster import BOUNDARY_TOKENS
from models import DEFAULT, MODELS, make_models
from models.checkpoint import Checkpoint, to_json
from policies.base import Policy
from policies.errors import PolicyError
from policies.guarded import Guarded
from policies.registry import make_policy

NO_STAND_INS: Mapping[str, str] = {}

ARTICLE_SEED = 42
"""What the article seeds the generator with that breaks its ties, anew for each window."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Where the windows lie and how they are read: `open_windows` and its arguments."""

    paths: tuple[Path, ...]
    fmt: str | None = None
    options: ReaderOptions = field(default_factory=ReaderOptions)

    def open(self) -> list[Trace]:
        """Return the windows, in order; each is read when it is gone through."""
        return open_windows(self.paths, fmt=self.fmt, options=self.options)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared: names of setups and an engine, policies as `policy_from` takes them.

    The first policy is the baseline; `clairvoyant` may be among them. `model` is what each window's
    forecaster starts from: one of `models.MODELS`, or what `load_checkpoint` takes. `parameters`
    are those of the causal engine, and the defaults for another one.
    """

    setups: tuple[str, ...]
    policies: tuple[str, ...]
    engine: str = "causal"
    model: str = DEFAULT
    seed: int = ARTICLE_SEED
    parameters: CausalParameters = USUAL


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Return name and settings of `NAME` or `NAME:KEY=VALUE,...`; NAME may be `module:Class` too.

    Raises
    ------
    ConfigError
        If a setting isn't KEY=VALUE.

    Examples
    --------
    >>> split_spec("early_rdma:copies=2,window_s=1"), split_spec("mine.policies:Mine")
    (('early_rdma', {'copies': '2', 'window_s': '1'}), ('mine.policies:Mine', {}))
    """
    head, equals, _ = spec.partition("=")
    name = head.rpartition(":")[0] if equals else spec
    pairs = [part.partition("=") for part in spec[len(name) + 1 :].split(",") if part]
    for key, found, _ in pairs:
        if not (name and found):
            raise ConfigError(
                f"--policy {spec}: {key!r} is no setting; expected NAME:KEY=VALUE,..."
            )
    return name, {key.strip(): value for key, _, value in pairs}


def policy_from(spec: str, seed: int, stand_ins: Mapping[str, str] = NO_STAND_INS) -> Policy:
    """Return the policy that `spec` names; `stand_ins` has names that others are used for.

    Raises
    ------
    ConfigError
        If there is no such policy, or it doesn't have such a parameter.

    Examples
    --------
    >>> policy_from("early_rdma:copis=2", seed=0)
    Traceback (most recent call last):
        ...
    btb.errors.ConfigError: --policy early_rdma:copis=2: policy 'early_rdma' has no parameter \
'copis'; did you mean 'copies'?
    """
    name, settings = split_spec(spec)
    try:
        return make_policy(stand_ins.get(name, name), seed=seed, **settings)
    except PolicyError as error:
        raise ConfigError(f"--policy {spec}: {error}") from error


def clairvoyant_tries(spec: str) -> int | None:
    """Return how many tries `clairvoyant` or `clairvoyant:tries=N` asks for, None for a policy.

    Raises
    ------
    ConfigError
        If it has another setting, or N is no whole number.
    """
    name, settings = split_spec(spec)
    if name != clairvoyant.NAME:
        return None
    tries = settings.pop("tries", str(clairvoyant.TRIES))
    if settings or not tries.isdecimal():
        raise ConfigError(f"--policy {spec}: expected clairvoyant, or clairvoyant:tries=N")
    return int(tries)


def starting_models(plan: Plan) -> str:
    """Return the checkpoint that each window's forecaster starts from, as JSON.

    Empty where no policy of `plan` looks at forecasts.

    Raises
    ------
    ConfigError
        If a policy isn't known, or the model can't be loaded.
    """
    _known("--engine", plan.engine, ENGINES)
    policies = _policies(plan).values()
    if not any(policy.horizons_s for policy in policies):
        return ""
    if plan.model in MODELS:
        fresh = make_models(plan.model)
        return to_json(Checkpoint(plan.model, fresh, boundary_tokens=BOUNDARY_TOKENS))
    return to_json(load_checkpoint(plan.model))


def plan_cells(
    plan: Plan, windows: Sequence[Trace], options: ReaderOptions, models: str
) -> list[Cell]:
    """Return the cells of `plan`, window by window, so that a worker reads each window once.

    `models` is from `starting_models`; only policies that look at forecasts depend on it.

    Raises
    ------
    ConfigError
        If a setup, the engine or a policy isn't known.
    """
    _known("--engine", plan.engine, ENGINES)
    knowing = any(clairvoyant_tries(spec) is not None for spec in plan.policies)
    if plan.engine != "causal" and (knowing or plan.parameters != USUAL):
        raise ConfigError(
            "clairvoyant, --noise, --hbm-share, --link-share and --output-tokens are the causal "
            f"engine's; {plan.engine} has none of them"
        )
    for setup in plan.setups:
        _known("--setup", setup, SETUPS)
    policies = _policies(plan)
    model = sha256(models.encode()).hexdigest()
    return [
        Cell(
            digest=window.digest,
            reading=f"{window.fmt} {options}",
            window=window.name,
            index=index,
            setup=setup,
            policy=spec,
            code=_source_digest(policies[spec]) if spec in policies else "",
            engine=plan.engine,
            model=model if spec in policies and policies[spec].horizons_s else "",
            seed=plan.seed,
            parameters=plan.parameters,
        )
        for index, window in enumerate(windows)
        for setup in plan.setups
        for spec in dict.fromkeys(plan.policies)
    ]


def _policies(plan: Plan) -> dict[str, Policy]:
    stand_ins = ENGINES[plan.engine].policies
    return {
        spec: policy_from(spec, plan.seed, stand_ins)
        for spec in plan.policies
        if clairvoyant_tries(spec) is None
    }


def _known(option: str, name: str, names: Iterable[str]) -> None:
    known = list(names)
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.0)
        raise ConfigError(
            f"{option}: nothing is called {name!r}; did you mean {near[0]!r}? "
            f"Known are {', '.join(known)}"
        )


def _source_digest(policy: Policy) -> str:
    inside = policy.inside if isinstance(policy, Guarded) else policy
    source = inspect.getsourcefile(type(inside))
    return sha256(Path(source).read_bytes()).hexdigest() if source else ""
