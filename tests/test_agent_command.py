"""`btb agent` and what it can have agents do, as a person types it."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from btb.agent_metrics import AgentMetrics
from btb.agent_process import AgentProcess, agent_process
from btb.cli import app
from btb.errors import ConfigError, UserError
from replication.errors import LeaseLost
from replication.plan import Move
from replication.result import Result as CopyResult

CUT = ("--slots", "8", "--layers", "2", "--layer-bytes", "1000")


def btb(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def said(*words: object) -> str:
    result = btb(*words)
    assert result.exit_code == 0, result.exception
    return result.stdout


def refused(*words: object) -> str:
    error = btb(*words).exception
    assert isinstance(error, UserError)
    return str(error)


@pytest.fixture(scope="module")
def trial() -> Iterator[AgentProcess]:
    with agent_process(*CUT, "--allow-fill") as agent:
        yield agent


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--listen", "8018"], "--listen: '8018' is no address; expected HOST:PORT or unix:PATH"),
        (["--listen", "0.0.0.0:8018"], "give the address that other agents reach this at"),
        (["--listen", "[::]:8018"], "give the address that other agents reach this at"),
        (["--listen", "10.0.0.1:8018"], "can be reached from elsewhere: give --token-file"),
        (["--layers", "2"], "--layers and --layer-bytes need each other"),
        (["--setup", "70b_h100x5"], "no setup is called '70b_h100x5'; known are "),
        (["--transport", "pigeon"], "no transport is called 'pigeon'; known are auto, shm"),
        (["--token-file", "/nowhere"], "token file /nowhere: can't be read"),
        (["--listen", "unix:/nowhere/agent"], "the agent can't start: unix:/nowhere/agent: "),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_an_agent_that_cant_be_is_refused_in_a_sentence(words: list[str], why: str) -> None:
    assert why in refused("agent", *words)


def test_a_token_that_is_too_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("short")
    assert "16 or more ASCII characters" in refused("agent", "--token-file", path)


def test_an_address_in_use_is_refused(trial: AgentProcess) -> None:
    assert "ddress already in use" in refused("agent", *CUT, "--listen", trial.address)


@pytest.mark.parametrize("order", ["list", "events", "cancel", "drop", "copy", "fill"])
def test_an_agent_that_isnt_there_is_named(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("btb.commands.agent_orders.PATIENCE_S", 0.0)
    address = f"unix:{tmp_path / 'none'}"
    more = ["--prefix", "1"] if order in ("cancel", "drop", "copy") else []
    more += ["--source", address] if order == "copy" else []
    assert f"agent {address}: PeerGone: " in refused("agent", order, address, *more)


def test_what_is_no_address_is_refused_where_agents_are_asked() -> None:
    error = btb("agent", "list", "nowhere").exception
    assert isinstance(error, ConfigError)


def test_a_setup_gives_the_pool_its_layers_and_ranks() -> None:
    """Qwen3-8B: 2 x 8 heads x 128 numbers of 2 bytes are 4,096 bytes a token and layer."""
    options = ("--setup", "qwen3_8b_h100x4", "--block-tokens", "32", "--slots", "2")
    with agent_process(*options) as agent:
        there = json.loads(said("agent", "list", agent.address, "--json", "-"))
    assert there["block_bytes"] == 36 * 32 * 4096
    assert there["block_tokens"] == 32
    assert there["slots"] == {"free": 2}


def test_a_prefix_is_made_up_copied_used_and_dropped(trial: AgentProcess) -> None:
    made_up = said("agent", "fill", trial.address, "--blocks", 3)
    assert made_up.startswith("3 blocks of random bytes made up; the prefix is ")
    prefix = made_up.split()[-1]
    there = json.loads(said("agent", "list", trial.address, "--json", "-"))
    assert there["prefixes"] == [{"tenant": "default", "prefix": int(prefix), "blocks": 3}]
    with agent_process(*CUT) as sink:
        order = ("agent", "copy", sink.address, "--source", trial.address, "--prefix", prefix)
        moved = json.loads(said(*order, "--json", "-"))
        assert (moved["ok"], moved["moved_bytes"], moved["error"]) == (True, 6000, None)
        assert said(*order) == "it is there already\n"
        listed = said("agent", "list", sink.address)
        assert "slots: 5 free, 3 valid of 2,000 bytes" in listed
        assert "over shm: it is on this host, under the same user" in listed
        assert prefix in listed
        events = [json.loads(line) for line in said("agent", "events", sink.address).splitlines()]
        assert [one["type"] for one in events[0]["events"]] == ["AllBlocksCleared", "BlockStored"]
        order = ("agent", "copy", trial.address, "--source", sink.address, "--prefix", prefix)
        assert said(*order) == "it is there already\n"
        assert said("agent", "drop", sink.address, "--prefix", prefix) == "3 of 3 blocks given up\n"
        following = ("--epoch", sink.epoch, "--since", 2)
        lines = said("agent", "events", sink.address, *following).splitlines()
        assert [json.loads(one)["events"][0]["never_used"] for one in lines] == [1, 1, 1]
        assert said("agent", "cancel", sink.address, "--prefix", prefix) == "0 copies called off\n"


def test_a_copy_that_isnt_made_exits_with_1_and_says_why(trial: AgentProcess) -> None:
    made_up = said("agent", "fill", trial.address, "--blocks", 2, "--seed", 5)
    with agent_process("--slots", "1", "--layers", "2", "--layer-bytes", "1000") as small:
        order = ("agent", "copy", small.address, "--source", trial.address)
        result = btb(*order, "--prefix", made_up.split()[-1])
    assert result.exit_code == 1
    assert result.stdout.startswith("not copied: NoRoom: 2 blocks need 1 more slots")


def test_a_prefix_that_no_source_has_is_refused(trial: AgentProcess) -> None:
    order = ("agent", "copy", trial.address, "--source", trial.address, "--prefix", 42)
    assert "LeaseLost: prefix 42 is not resident" in refused(*order)


def test_kv_is_made_up_only_where_that_was_allowed() -> None:
    with agent_process(*CUT) as real:
        assert "was not started for trying out" in refused("agent", "fill", real.address)


def test_a_token_is_needed_where_an_agent_has_one(tmp_path: Path) -> None:
    path, other = tmp_path / "token", tmp_path / "other"
    path.write_text("a-token-of-24-characters")
    other.write_text("b-token-of-24-characters")
    with agent_process(*CUT, "--token-file", str(path)) as agent:
        assert "8 free" in said("agent", "list", agent.address, "--token-file", path)
        assert "Refused: the peer has another token" in refused("agent", "list", agent.address)
        order = ("agent", "list", agent.address, "--token-file", other)
        assert "Refused: the peer has another token" in refused(*order)


def test_prometheus_is_told_of_slots_and_copies(trial: AgentProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    prefix = said("agent", "fill", trial.address, "--blocks", 3, "--seed", 7).split()[-1]
    with agent_process(*CUT, "--metrics-port", str(port)) as target:
        said("agent", "copy", target.address, "--source", trial.address, "--prefix", prefix)
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert 'btb_agent_copies_total{result="whole"} 1.0' in text
    assert f'btb_agent_copy_bytes_total{{part="moved"}} {3 * 2000.0}' in text
    assert 'btb_agent_slots{state="valid"} 3.0' in text
    assert "btb_agent_leases 0.0" in text


def test_a_copy_that_failed_counts_by_its_error() -> None:
    metrics = AgentMetrics()
    move = Move("default", (1, 2), ("a",), "b", 4000, 9.0, 1.0, "why")
    metrics.count(CopyResult(move, 0, 1000, 0.5, "a -> b", 2, LeaseLost("gone")))
    told = metrics.registry.get_sample_value
    assert told("btb_agent_copies_total", {"result": "LeaseLost"}) == 1.0
    assert told("btb_agent_copy_bytes_total", {"part": "wasted"}) == 1000.0
    assert told("btb_agent_copy_retries_total") == 2.0
    assert told("btb_agent_copy_seconds_sum") == 0.5


def test_a_port_that_is_taken_is_refused_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        why = refused("agent", *CUT, "--listen", "127.0.0.1:0", "--metrics-port", port)
    assert f"--metrics-port: can't listen on {port}: Address already in use" in why
