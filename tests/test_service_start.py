"""What `btb serve` checks before it listens."""

import re
import socket
from pathlib import Path

import pytest

from btb.commands.serve import over
from btb.config import Config, LogSettings, ModelSettings, Server
from btb.errors import ConfigError
from btb.service.keeper import ModelKeeper
from btb.service.metrics import Metrics
from btb.service.running import address, bind, make_service, read_token
from forecasting.arrival import Arrival
from models import make_models
from models.checkpoint import Checkpoint, to_json

TOKEN = "0123456789abcdef"  # noqa: S105


def test_loopback_needs_no_token_and_other_addresses_do() -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.3.2.1"):
        assert read_token(Server(host=host)) == ""
    for host in ("0.0.0.0", "10.0.0.1", "::", "btb.example.com", "localhost.example.com"):  # noqa: S104
        with pytest.raises(ConfigError, match="give --token-file"):
            read_token(Server(host=host))


def test_a_token_is_the_one_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert read_token(Server(host="10.0.0.1", token_file=str(path))) == TOKEN


@pytest.mark.parametrize(
    "text", ["", "short", f"{TOKEN}\n{TOKEN}", f"{TOKEN} x", f"{TOKEN}é", f"{TOKEN}\x00"]
)
def test_a_file_without_a_fit_token_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="expected one line of 16 or more") as raised:
        read_token(Server(token_file=str(path)))
    assert TOKEN not in str(raised.value)


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        read_token(Server(token_file=str(tmp_path / "none")))


def test_a_free_port_is_found_and_a_taken_one_is_named() -> None:
    with bind(Server(port=0)) as bound:
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+", address(bound))
        # asyncio sets TCP_NODELAY on sockets with this protocol only.
        assert bound.proto == socket.IPPROTO_TCP
        bound.listen()
        port = bound.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: Address already in use"):
            bind(Server(port=port))
    with pytest.raises(ConfigError, match=r"host no\.such\.host\.invalid"):
        bind(Server(host="no.such.host.invalid"))


def test_what_is_given_on_the_command_line_goes_before_the_file() -> None:
    file = Config(policy="random", server=Server(port=9000), log=LogSettings(dir="a", group_s=1.0))
    asked = {"policy": "btb", "model": None, "host": None, "port": 9001, "log_dir": "b"}
    config = over(file, asked)
    assert (config.policy, config.model) == ("btb", "combined")
    assert config.server == Server(port=9001)
    assert config.log == LogSettings(dir="b", group_s=1.0)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(model="rivr"), "no model is called 'rivr'; did you mean 'river'?"),
        (Config(setup="70b"), "no setup is called '70b'; known are"),
        (Config(policy="btbb"), "no policy is called 'btbb'; did you mean 'btb'?"),
        (Config(policy_parameters={"horizon": 1.0}), "no parameter 'horizon'; did you mean"),
    ],
)
def test_names_that_are_unknown_are_told_with_known_ones(config: Config, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_service(config)
    assert message in str(raised.value)


def test_the_page_on_the_service_names_every_metric_there_is() -> None:
    page = (Path(__file__).parents[1] / "docs" / "service.md").read_text(encoding="utf-8")
    service = make_service(Config(model="ewma"))
    assert isinstance(service.parts.metrics, Metrics)
    for family in service.parts.metrics.registry.collect():
        if not family.name.startswith("process_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert f"`{name}" in page


def test_a_wrong_value_on_the_command_line_is_said_to_come_from_there() -> None:
    with pytest.raises(ConfigError, match="command line: server: port must be"):
        over(Config(), {"port": -1})


def test_a_checkpoint_brings_the_depth_it_was_trained_at(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(to_json(Checkpoint("ewma", make_models("ewma"), boundary_tokens=512)))
    forecaster = ModelKeeper(str(path), ModelSettings()).make_forecaster()
    forecaster.observe(Arrival(0.0, (7, 8, 9), 512, 1536))
    (hottest,) = forecaster.hottest(0.0, 1)
    assert hottest.prefix.tokens == 512
    assert sorted(hottest.counts) == [1.0, 5.0, 15.0, 60.0]
