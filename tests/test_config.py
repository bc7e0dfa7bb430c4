import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from btb.config import Config, Limits, fill, read_config
from btb.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "btb.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        policy = "early_rdma"
        copies = false
        [policy_parameters]
        threshold = 3
        [server]
        port = 9000
        [log]
        dir = "log"
        group_s = 1
        """,
    )
    config = read_config(path)
    assert config.policy == "early_rdma"
    assert config.policy_parameters == {"threshold": 3}
    assert (config.server.port, config.server.host) == (9000, "127.0.0.1")
    assert (config.log.dir, config.log.group_s) == ("log", 1.0)
    assert not config.copies
    assert config.limits == Limits()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polcy = 'btb'", "unknown key 'polcy'; did you mean 'policy'?"),
        ("[server]\nhots = 'x'", "server: unknown key 'hots'; did you mean 'host'?"),
        ("[limits]\nqqqq = 1", "known are batch, body_bytes"),
        ("[limits]\nbatch = '7'", "limits: batch must be a whole number, got '7'"),
        ("[limits]\nbatch = true", "batch must be a whole number, got True"),
        ("[limits]\nbatch = 0", "batch must be finite and more than 0, got 0"),
        ("[limits]\nbody_s = nan", "body_s must be finite and more than 0"),
        ("[limits]\nbody_s = '1'", "body_s must be a number, got '1'"),
        ("[server]\nport = 70000", "port must be at most 65535"),
        ("[server]\nport = -1", "port must be finite and more than 0"),
        ("server = 1", "server must be a table, got 1"),
        ("copies = 1", "copies must be true or false, got 1"),
        ("[policy_parameters]\nx = [1]", "policy_parameters: x must be text, a number"),
        ("policy = ", "is no TOML"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        read_config(path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: can't be read: No such file"):
        read_config(tmp_path / "none.toml")


def test_port_0_and_any_seed_are_allowed() -> None:
    config = fill(Config(), {"seed": -1, "server": {"port": 0}})
    assert (config.seed, config.server.port) == (-1, 0)


def test_the_page_on_the_service_shows_every_setting_with_its_default() -> None:
    page = (Path(__file__).parents[1] / "docs" / "service.md").read_text(encoding="utf-8")
    shown = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])
    assert shown == asdict(Config())
