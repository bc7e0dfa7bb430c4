"""`btb new-policy` and the cookbook: what they give an author to start from works."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from btb.cli import app
from btb.errors import ConfigError
from policies.checks import CHECKS

ROOT = Path(__file__).parents[1]


def pytest_passes(folder: Path, name: str) -> str:
    """Run a test file as an author would, in its folder, and return what was said."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_cookbook_runs_as_it_stands() -> None:
    page = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    exec(compile("\n".join(blocks), "docs/cookbook.md", "exec"), {"__name__": "cookbook"})  # noqa: S102


def test_what_is_written_passes_its_own_test(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["new-policy", "my_own", "--to", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    assert "--policy my_own:MyOwn" in ran.output
    assert f"{len(CHECKS) + 1} passed" in pytest_passes(tmp_path, "test_my_own.py")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MyOwn", "lower case"),
        ("my-own", "lower case"),
        ("class", "lower case"),
        ("_", "lower case"),
        ("btb", "called 'btb' already"),
        ("random", "called 'random' already"),
        ("json", "module is called 'json' already"),
    ],
)
def test_a_name_that_will_not_do_is_refused(tmp_path: Path, name: str, said: str) -> None:
    ran = CliRunner().invoke(app, ["new-policy", name, "--to", str(tmp_path)])
    assert isinstance(ran.exception, ConfigError)
    assert said in str(ran.exception)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "test_my_own.py").write_text("# mine\n")
    ran = CliRunner().invoke(app, ["new-policy", "my_own", "--to", str(tmp_path)])
    assert isinstance(ran.exception, ConfigError)
    assert "is there already" in str(ran.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["test_my_own.py"]
    assert (tmp_path / "test_my_own.py").read_text() == "# mine\n"
