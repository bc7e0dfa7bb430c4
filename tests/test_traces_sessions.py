"""Agent sessions without a common clock: kv-cache-tester's two forms, sub-agents, copies."""

import json
from pathlib import Path
from typing import Any

import pytest

from btb.errors import TraceError
from btb.traces import ReaderOptions, Trace, open_trace, open_windows
from btb.traces.hashing import chained, root
from btb.traces.sessions import start_s

AT_ONCE = ReaderOptions(start_spread_s=0.0)


def call(at_s: float, ids: list[int], **more: object) -> dict[str, Any]:
    fields = {"t": at_s, "type": "n", "model": "m", "in": 64 * len(ids) + 9, "out": 5}
    return {**fields, "hash_ids": ids, **more}


def session(name: str, requests: list[dict[str, Any]], scope: str = "local") -> dict[str, Any]:
    return {"id": name, "block_size": 64, "hash_id_scope": scope, "requests": requests}


def opened(path: Path, *sessions: dict[str, Any], options: ReaderOptions = AT_ONCE) -> Trace:
    path.write_text("".join(json.dumps(one) + "\n" for one in sessions))
    return open_trace(path, options=options)


def test_calls_of_all_sessions_come_in_the_order_of_time(tmp_path: Path) -> None:
    trace = opened(
        tmp_path / "a.jsonl",
        session("one", [call(0.0, [1, 2]), call(9.0, [1, 2, 3])]),
        session("two", [call(0.5, [1]), call(4.0, [1, 7])]),
    )
    seen = [(arrival.at_s, arrival.session, len(arrival.chain)) for arrival in trace]
    assert seen == [(0.0, "one", 2), (0.5, "two", 1), (4.0, "two", 2), (9.0, "one", 3)]
    assert (trace.fmt, trace.block_tokens) == ("kv_cache_tester", 64)


def test_local_ids_meet_inside_their_session_only(tmp_path: Path) -> None:
    calls = [call(0.0, [1, 2]), call(1.0, [1, 2, 3])]
    trace = opened(
        tmp_path / "a.jsonl", session("one", calls), session("two", [*calls, call(2.0, [1])])
    )
    first, second, third, *_ = trace
    assert {first.session, second.session} == {"one", "two"}
    assert set(first.chain).isdisjoint(second.chain)
    assert third.chain[:2] in (first.chain, second.chain)


def test_global_ids_meet_across_sessions_and_are_said_to_be_no_load(tmp_path: Path) -> None:
    trace = opened(
        tmp_path / "a.jsonl",
        session("one", [call(0.0, [4, 5])], "global"),
        session("two", [call(0.0, [4, 6])], "global"),
    )
    first, second = trace
    assert first.chain == chained([4, 5], root(64, model="m"))
    assert first.chain[0] == second.chain[0]
    assert first.chain[1] != second.chain[1]
    assert any("do not take these calls for load" in note for note in trace.report.notes)


def test_two_models_never_meet(tmp_path: Path) -> None:
    calls = [call(0.0, [1, 2]), call(1.0, [1, 2], model="other"), call(2.0, [1, 2, 3])]
    first, second, third = opened(tmp_path / "a.jsonl", session("one", calls))
    assert set(first.chain).isdisjoint(second.chain)
    assert third.chain[:2] == first.chain


def test_a_subagent_counts_from_its_own_beginning(tmp_path: Path) -> None:
    inner = {"t": 10.0, "type": "subagent", "agent_id": "explorer"}
    nested = {**inner, "requests": [call(0.0, [1, 8]), call(5.0, [1, 8, 9])]}
    trace = opened(
        tmp_path / "a.jsonl", session("one", [call(0.0, [1]), nested, call(12.0, [1, 2])])
    )
    seen = [(arrival.at_s, arrival.session) for arrival in trace]
    agent = "one/explorer"
    assert seen == [(0.0, "one"), (10.0, agent), (12.0, "one"), (15.0, agent)]
    main, sub, *_ = trace
    assert main.chain[0] == sub.chain[0]


def test_the_compact_form_reads_like_the_plain_one(tmp_path: Path) -> None:
    lists = [[1, 2, 3, 9], [1, 2, 3, 4, 5, 20], [1, 7], []]
    compact: list[dict[str, Any]] = [
        {"keep": 0, "runs": [1, 3, 9, 1]},
        {"keep": 3, "runs": [4, 2, 20, 1]},
        {"keep": 1, "runs": [7, 1]},
        {"keep": 0, "runs": []},
    ]
    plain = [call(float(at), ids) for at, ids in enumerate(lists)]
    packed = [
        {name: value for name, value in {**one, **form}.items() if name != "hash_ids"}
        for one, form in zip(plain, compact, strict=True)
    ]
    assert list(opened(tmp_path / "a.jsonl", session("one", plain))) == list(
        opened(tmp_path / "b.jsonl", session("one", packed))
    )


def test_exact_copies_are_left_out_and_counted(tmp_path: Path) -> None:
    calls = [call(0.0, [1]), call(1.0, [1, 2])]
    other = [call(0.0, [1]), call(1.5, [1, 2])]
    sessions = [session("a", calls), session("b", other), session("c", calls), session("d", calls)]
    trace = opened(tmp_path / "a.jsonl", *sessions)
    assert {arrival.session for arrival in trace} == {"a", "b"}
    assert "2 sessions left out: exact copies of another" in trace.report.notes
    keeping = ReaderOptions(start_spread_s=0.0, drop_copies=False)
    assert len(list(opened(tmp_path / "a.jsonl", *sessions, options=keeping))) == 8


def test_starts_are_spread_by_seed_and_name(tmp_path: Path) -> None:
    sessions = [session(f"s{number}", [call(0.0, [1])]) for number in range(400)]
    starts_s = []
    for seed in (0, 1):
        options = ReaderOptions(seed=seed, drop_copies=False)
        arrivals = list(opened(tmp_path / "a.jsonl", *sessions, options=options))
        starts_s.append([start_s(one.session, 3600.0, seed) for one in arrivals])
        since_first_s = [one - starts_s[-1][0] for one in starts_s[-1]]
        assert [one.at_s for one in arrivals] == since_first_s
    assert starts_s[0] != starts_s[1]
    assert 0.0 <= starts_s[0][0] < 60.0
    assert 3540.0 < starts_s[0][-1] < 3600.0
    assert sum(starts_s[0]) / 400 == pytest.approx(1800.0, abs=4 * 3600.0 / (12 * 400) ** 0.5)


def test_a_folder_of_session_files_is_one_trace(tmp_path: Path) -> None:
    for name in ("one", "two"):
        path = tmp_path / f"trace_{name}.json"
        path.write_text(
            json.dumps(session(name, [call(0.0, [1]), call(1.0, [len(name)])]), indent=1)
        )
    (only,) = open_windows([tmp_path], options=ReaderOptions(drop_copies=False))
    assert sorted(arrival.session for arrival in only) == ["one", "one", "two", "two"]


@pytest.mark.parametrize(
    ("spoilt", "field"),
    [
        (call(-1.0, [1]), r"requests\[1\].t"),
        (call(1.0, [1], **{"in": 10}), ""),
        (call(1.0, [1, 2], **{"in": 64}), r"requests\[1\].hash_ids"),
        (call(1.0, [1], keep=5, runs=[]), r"requests\[1\].keep"),
        ({"t": 1.0, "type": "subagent", "requests": 4}, r"requests\[1\].requests"),
    ],
)
def test_a_bad_call_is_named_by_its_place(
    tmp_path: Path, spoilt: dict[str, Any], field: str
) -> None:
    trace = opened(tmp_path / "a.jsonl", session("one", [call(0.0, [1]), spoilt]))
    if not field:
        assert len(list(trace)) == 2
        return
    with pytest.raises(TraceError, match=f"a.jsonl:1: {field}: expected"):
        list(trace)
