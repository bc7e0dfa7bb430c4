"""What the docs say is so: the picture, the example, the links, the commands, the tables."""

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import typer

from btb.cli import COMMANDS
from btb.controller import Controller
from btb.simulation.engines import ENGINES
from btb.simulation.parameters import CausalParameters
from btb.simulation.setups import SETUPS
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from models.ewma import Ewma
from policies import POLICIES, make_policy
from policies.registry import settable_parameters

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^(?:\$ )?btb (\w+)(.*)$", re.MULTILINE)
SOURCE = re.compile(r"`((?:btb|forecasting|models|policies|replication|tests|docs)/[a-z\d_./-]*)`")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def code(page: Path, language: str | None = None) -> Iterator[str]:
    """Yield the code blocks of a page, or those in one language; not what commands put out."""
    for found, text in FENCED.findall(page.read_text(encoding="utf-8")):
        if found != "text" and language in (None, found):
            yield text


def anchors(page: Path) -> set[str]:
    """Return what the headings of a page can be linked by."""
    titles = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def options(command: str) -> set[str]:
    """Return the options that a command takes, or a command below it."""
    module = import_module(f"btb.commands.{command}")
    found = {"--help"}
    for function in (getattr(module, command), *getattr(module, "SUBCOMMANDS", {}).values()):
        app = typer.Typer(add_completion=False)
        app.command()(function)
        for one in typer.main.get_command(app).params:
            found.update((*one.opts, *one.secondary_opts))
    return found


def test_the_picture_is_what_the_script_draws() -> None:
    spec = spec_from_file_location("draw_flow", ROOT / "docs" / "draw_flow.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (ROOT / "docs" / "flow.svg").read_text(encoding="utf-8") == script.draw()


def test_the_picture_can_be_read_aloud() -> None:
    picture = ElementTree.parse(ROOT / "docs" / "flow.svg").getroot()  # noqa: S314
    names = picture.attrib["aria-labelledby"].split()
    texts = {one.attrib.get("id"): one.text for one in picture}
    assert all(texts[name] for name in names)


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@each_page
def test_files_that_are_named_are_there(page: Path) -> None:
    for name in SOURCE.findall(prose(page)):
        assert (ROOT / name).exists(), name


@each_page
def test_commands_have_the_options_that_they_are_shown_with(page: Path) -> None:
    for block in code(page):
        for command, rest in COMMAND.findall(block.replace("\\\n", " ")):
            assert command in COMMANDS
            assert set(re.findall(r"(?<!\S)--[a-z-]+", rest)) <= options(command)


@each_page
def test_make_is_shown_with_targets_that_it_has(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)|`make (\w+)`", text, flags=re.MULTILINE):
        assert re.search(rf"^{''.join(target)}:", makefile, flags=re.MULTILINE), target


def burst() -> list[Arrival]:
    """Make 12 requests, half a second apart, that share 8 blocks of 512 tokens and last 2 s."""
    shared = tuple(range(1, 9))
    return [
        Arrival(number / 2, (*shared, 100 + number), 512, 9 * 512, output_tokens=100)
        for number in range(12)
    ]


def test_the_example_policy_runs_and_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = code(ROOT / "README.md", "python")
    (tmp_path / "mine.py").write_text(example, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        policy = make_policy("mine:SpreadHot", seed=0, more="0.01")
    finally:
        sys.modules.pop("mine", None)
    controller = Controller(policy, Forecaster({15.0: Ewma(15.0)}))
    result = ENGINES["causal"].simulate(SETUPS["70b_h100x4"], controller, burst())
    assert np.isfinite(result.ttft_s).all()
    assert result.decisions["hot, copied"] == 3
    assert result.wasted_bytes == 0.0 < result.moved_bytes


def test_the_example_policy_is_about_as_short_as_the_readme_says() -> None:
    (example,) = code(ROOT / "README.md", "python")
    body = example[example.index("class ") :]
    assert len(body.splitlines()) <= 25


def test_the_table_of_policies_has_all_of_them_with_their_defaults() -> None:
    rows = re.findall(
        r"^\| (`.*?) \|.*\| (.*?) \|$", prose(ROOT / "docs/policies.md"), re.MULTILINE
    )
    shown = {name: row for names, row in rows for name in re.findall(r"`(\w+)`", names)}
    assert shown.keys() == POLICIES.keys()
    for name, make in POLICIES.items():
        if shown[name] == "as above":
            continue
        known = inspect.signature(make).parameters
        defaults = {key: known[key].default for key in settable_parameters(make)}
        found = {key: float(value) for key, value in re.findall(r"`(\w+)` ([\d.]+)", shown[name])}
        assert found == defaults, name


def test_every_assumption_of_an_engine_is_in_the_docs() -> None:
    said = re.sub(r"\s+", " ", prose(ROOT / "docs" / "simulation.md"))
    for name, engine in ENGINES.items():
        for assumption in engine.assumptions:
            assert assumption in said, name


def test_every_setup_and_parameter_of_the_simulator_is_in_the_docs() -> None:
    said = re.findall(r"`(\w+)`", prose(ROOT / "docs" / "simulation.md"))
    parameters = {field.name for field in fields(CausalParameters)}
    assert SETUPS.keys() | parameters <= set(said)
