"""What stands at the root, and that nobody else installs a package of the same name."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from btb import packages
from btb.cli import COMMANDS
from btb.errors import ConfigError
from btb.packages import PACKAGES

ROOT = Path(__file__).parents[1]
NO_PACKAGES = {"benchmarks", "docs", "tests", "build", "dist"}
"""Folders that may hold Python files and are never installed."""


@pytest.mark.parametrize("package", PACKAGES)
def test_only_our_distribution_has_a_package_of_this_name(package: str) -> None:
    assert set(packages_distributions()[package]) == {"bite-the-bullet"}


def test_a_package_of_the_same_name_from_elsewhere_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packages.check_packages()
    owners = {"btb": ["bite-the-bullet"], "models": ["bite-the-bullet", "tf-models"]}
    monkeypatch.setattr(packages, "packages_distributions", lambda: owners)
    with pytest.raises(ConfigError, match="tf-models installs a package called 'models' too"):
        packages.check_packages()


def test_our_distribution_has_no_other_package() -> None:
    ours = {name for name, by in packages_distributions().items() if "bite-the-bullet" in by}
    assert ours == set(PACKAGES)


def test_nothing_else_at_the_root_can_be_imported() -> None:
    found = set()
    for entry in ROOT.iterdir():
        if entry.name.startswith(".") or entry.name in NO_PACKAGES:
            continue
        if entry.suffix == ".py" or (entry.is_dir() and any(entry.glob("*.py"))):
            found.add(entry.name)
    assert found == set(PACKAGES)


def test_tests_and_benchmarks_and_docs_are_no_packages() -> None:
    assert not [name for name in NO_PACKAGES if (ROOT / name / "__init__.py").exists()]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_the_commands_are_the_functions_that_have_their_files_name() -> None:
    defined = set()
    for path in (ROOT / "btb" / "commands").glob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        if any(isinstance(one, ast.FunctionDef) and one.name == path.stem for one in body):
            defined.add(path.stem.replace("_", "-"))
    assert defined == set(COMMANDS)


def test_help_lists_the_commands_with_a_line_each() -> None:
    command = Path(sys.executable).with_name("btb")
    shown = subprocess.run(
        [command, "--help"],
        env={"COLUMNS": "100", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = re.findall(r"^│ (\w[\w-]*) +(\S.*?) +│$", shown, flags=re.MULTILINE)
    assert dict(rows) == dict(COMMANDS)
