"""Each format on a few rows made by hand; shapes as in the formats' own documents."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from btb.errors import TraceError
from btb.traces import FORMATS, ReaderOptions, Trace, open_trace
from btb.traces.hashing import chained, root
from forecasting.arrival import Arrival


def opened(path: Path, *rows: dict[str, Any], options: ReaderOptions | None = None) -> Trace:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return open_trace(path, options=options or ReaderOptions())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def test_each_format_is_listed_by_its_name() -> None:
    assert all(name == one.name for name, one in FORMATS.items())
    assert len(FORMATS) == 13


def test_mooncake_finds_its_block_size_from_the_lengths(path: Path) -> None:
    row = {"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [4, 5, 6]}
    trace = opened(path, row)
    assert list(trace) == [Arrival(0.0, (4, 5, 6), 256, 600, 9)]
    assert trace.report.notes == []


def test_mooncake_says_where_the_block_size_does_not_follow(path: Path) -> None:
    row = {"timestamp": 0, "input_length": 9, "output_length": 9, "hash_ids": [4]}
    trace = opened(path, row)
    assert trace.block_tokens == 512
    assert "taken for 512 tokens" in trace.report.notes[0]
    assert opened(path, row, options=ReaderOptions(block_tokens=128)).block_tokens == 128


def test_mooncake_tenants_never_meet(path: Path) -> None:
    row = {"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [4, 5]}
    one, two, plain = opened(path, {**row, "tenant": "x"}, {**row, "tenant": "y"}, row)
    assert one.chain == chained([4, 5], root(512, tenant="x"))
    assert set(one.chain).isdisjoint(two.chain)
    assert (one.tenant, two.tenant, plain.chain) == ("x", "y", (4, 5))


def test_btb_passes_over_other_kinds_and_keeps_whole_64_bit_hashes(path: Path) -> None:
    row = {"v": 1, "kind": "arrival", "at_s": 2.5, "chain": [2**64 - 1], "block_tokens": 16}
    more = {"input_tokens": 20, "tenant": "t", "session": "s", "request_id": "r"}
    trace = opened(path, {"v": 1, "kind": "outcome", "ttft_s": 0.2}, {**row, **more})
    assert list(trace) == [Arrival(0.0, (2**64 - 1,), 16, 20, 1, "t", "s", "r")]
    assert trace.report.bad == 0


def test_btb_wants_one_block_size(path: Path) -> None:
    row = {"v": 1, "kind": "arrival", "at_s": 0, "chain": [], "block_tokens": 16}
    trace = opened(path, {**row, "input_tokens": 1}, {**row, "input_tokens": 1, "block_tokens": 8})
    with pytest.raises(TraceError, match="block_tokens: expected 16, as in the first arrival"):
        list(trace)


def test_bailian_chains_its_blocks_and_follows_conversations(path: Path) -> None:
    row = {"type": "text", "input_length": 40, "output_length": 12}
    trace = opened(
        path,
        {**row, "chat_id": 3, "parent_chat_id": -1, "timestamp": 0.5, "hash_ids": [0, 1]},
        {**row, "chat_id": 9, "parent_chat_id": 3, "timestamp": 61.5, "hash_ids": [0, 1, 7]},
        {**row, "chat_id": 12, "parent_chat_id": 9, "timestamp": 99.0, "hash_ids": [1]},
    )
    first, second, third = trace
    assert [one.session for one in (first, second, third)] == ["3", "3", "3"]
    assert second.at_s == 61.0
    assert second.chain[:2] == first.chain
    assert third.chain[0] not in second.chain
    assert trace.block_tokens == 16


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_art_reads_the_same_from_json_lines_and_parquet(tmp_path: Path, kind: str) -> None:
    rows = [
        {"timestamp": 1000 * at, "input_length": 512, "output_length": 4, "hash_ids": [f"b{at}"]}
        for at in range(3000)
    ]
    rows = [{**row, "system_prompt_hash": "f00"} for row in rows]
    expected = list(opened(tmp_path / "b.jsonl", *rows))
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "b.parquet", row_group_size=700)
    trace = open_trace(tmp_path / f"b.{kind}")
    assert list(trace) == expected
    assert (trace.fmt, trace.block_tokens) == ("art", 256)
    assert expected[1].at_s == 1.0


def test_ragpulse_lays_out_pieces_by_the_lengths_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "my_0_trace.jsonl"
    sides: dict[str, list[dict[str, int]]] = {
        "1_sys_prompt": [{"sys_prompt_id": 1, "token_length": 100}],
        "2_passages": [{"passage_id": number, "token_length": 50} for number in (2, 3)],
        "3_history": [{"history_id": 4, "token_length": 10}],
        "4_user_input": [{"user_input_id": 5, "token_length": 20}],
        "5_web_search": [{"web_search_id": 6, "token_length": 20}],
    }
    for side, rows in sides.items():
        (tmp_path / f"my_{side}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ids: dict[str, list[int]] = {"sys_prompt": [1], "history": [4], "web_search": []}
    row = {"input_length": 240, "output_length": 7, "session_id": "s"}
    trace = opened(
        path,
        {**row, "timestamp": "95", "hash_ids": {**ids, "passages_ids": [3], "user_input": [5]}},
        {**row, "timestamp": "82", "hash_ids": {**ids, "passages_ids": [2, 3], "user_input": []}},
    )
    first, second = trace
    assert [one.at_s for one in trace] == [0.0, 13.0]
    assert trace.report.reordered == 1
    assert [len(first.chain), len(second.chain)] == [210 // 64, 180 // 64]
    assert first.chain[0] == second.chain[0]  # 64 of the 100 tokens of the system prompt
    assert first.chain[1] != second.chain[1]  # 36 more, and 28 of another passage
    (tmp_path / "my_3_history.jsonl").unlink()
    with pytest.raises(TraceError, match="3_history"):
        open_trace(path)


def dynamo(request_id: str, received_ms: int, **more: object) -> dict[str, Any]:
    request = {"request_id": request_id, "model": "m", "input_tokens": 33, "output_tokens": 2}
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "agent_context": {"session_id": "run"},
        "request": {**request, "request_received_ms": received_ms, **more},
    }


def test_dynamo_reads_wrapped_and_bare_rows_by_the_time_of_receipt(path: Path) -> None:
    replay = {"trace_block_size": 16, "input_length": 33, "input_sequence_hashes": [2**64 - 1, 5]}
    late = dynamo("late", 1_779_163_102_000, replay=replay)
    early = dynamo("early", 1_779_163_101_250, replay=replay)
    tool = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end"}
    trace = opened(path, tool, {"timestamp": 7, "event": late}, early)
    first, second = trace
    assert [(one.request_id, one.at_s) for one in trace] == [("early", 0.0), ("late", 0.75)]
    assert first.chain == second.chain == chained([2**64 - 1, 5], root(16, model="m"))
    assert (first.session, first.input_tokens, trace.has_prefixes) == ("run", 33, True)
    assert (trace.report.rows, trace.report.bad) == (2, 0)


def test_dynamo_without_replay_has_no_prefixes_and_says_so(path: Path) -> None:
    trace = opened(path, dynamo("r", 1))
    assert not trace.has_prefixes
    assert "rate models only" in trace.report.notes[0]
    assert [one.chain for one in trace] == [()]


def test_lmcache_cuts_text_into_blocks_on_either_clock(path: Path) -> None:
    head = "y" * 256
    trace = opened(
        path,
        {
            "timestamp": 1_760_000_000_500_000,
            "input": head + "a" * 300,
            "output": "",
            "session_id": "s",
        },
        {
            "timestamp": 1_760_000_002,
            "input": head + "b" * 256,
            "output": "12345678",
            "session_id": 4,
        },
    )
    first, second = trace
    assert [one.at_s for one in trace] == [0.0, 1.5]
    assert [len(one.chain) for one in trace] == [2, 2]
    assert first.chain[0] == second.chain[0]
    assert first.chain[1] != second.chain[1]
    assert [(one.input_tokens, one.output_tokens) for one in trace] == [(139, 1), (128, 2)]
    assert "4 characters a token" in trace.report.notes[0]


def test_azure_and_burstgpt_have_rates_only_and_say_so(tmp_path: Path) -> None:
    azure = tmp_path / "azure.csv"
    azure.write_bytes(
        b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        b"2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.9799600,3180,8\r\n"
    )
    burstgpt = tmp_path / "BurstGPT_3.csv"
    burstgpt.write_text(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type\n5,s1,0.2,ChatGPT,472,18,490,Conversation log\n"
        "45.5,,0.4,GPT-4,417,0,417,API log\n"
    )
    for file, lengths, last_s in (
        (azure, [(4808, 10), (3180, 8)], 1.0),
        (burstgpt, [(472, 18), (417, 0)], 40.5),
    ):
        trace = open_trace(file)
        assert [(one.input_tokens, one.output_tokens) for one in trace] == lengths
        assert [one.at_s for one in trace] == pytest.approx([0.0, last_s], abs=1e-6)
        assert not trace.has_prefixes
        assert trace.report.notes == ["no prefixes in this format: rate models only"]
    assert [one.session for one in open_trace(burstgpt)] == ["s1", ""]


def test_a_csv_row_of_another_width_is_bad(tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,2\n7,8\n")
    with pytest.raises(TraceError, match=r"azure\.csv:3: expected 3 columns"):
        list(open_trace(file))


def test_aiperf_lays_a_closed_loop_on_a_clock_by_its_delays(path: Path) -> None:
    ids = {"input_length": 1300, "output_length": 64}
    trace = opened(
        path,
        {**ids, "session_id": "a", "hash_ids": [46, 47, 48]},
        {**ids, "session_id": "a", "delay": 850, "hash_ids": [46, 47, 49]},
        {**ids, "session_id": "b", "timestamp": 100, "hash_ids": [46, 50, 51]},
        {**ids, "session_id": "b", "delay": 50.5, "hash_ids": [46, 50, 51]},
        options=ReaderOptions(start_spread_s=0.0),
    )
    seen = [(one.session, round(one.at_s, 6)) for one in trace]
    assert seen == [("a", 0.0), ("b", 0.1), ("b", 0.1505), ("a", 0.85)]
    assert next(iter(trace)).chain == (46, 47, 48)
    assert trace.fmt == "aiperf"
    assert "as if answers took no time" in trace.report.notes[0]


def test_aiperf_hashes_text_messages_and_payloads(path: Path) -> None:
    system = {"role": "system", "content": "s" * 600}
    messages = [system, {"role": "user", "content": "u" * 300}]
    trace = opened(
        path,
        {"timestamp": 0, "messages": messages, "output_length": 4},
        {"timestamp": 10, "payload": {"messages": messages}, "output_length": 4},
        {"timestamp": 20, "text_input": "t" * 512, "output_length": 4},
        {"timestamp": 30, "text_input": "t" * 600, "input_length": 70, "output_length": 4},
    )
    one, two, three, four = trace
    assert len(one.chain) == 3
    assert one.chain == two.chain
    assert (len(three.chain), three.input_tokens) == (2, 128)
    assert (four.chain, four.input_tokens) == (three.chain[:1], 70)
    assert trace.has_prefixes


def attributes(**more: object) -> dict[str, Any]:
    usage = {"gen_ai.usage.input_tokens": 2100, "gen_ai.usage.output_tokens": 12}
    return {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **usage, **more}


def test_otel_reads_every_span_of_an_otlp_object(path: Path) -> None:
    def span(nanoseconds: int, operation: str) -> dict[str, Any]:
        values = [
            {"key": "gen_ai.operation.name", "value": {"stringValue": operation}},
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "2100"}},
            {"key": "gen_ai.conversation.id", "value": {"stringValue": "c-1"}},
            {"key": "gen_ai.system_instructions", "value": {"stringValue": "x" * 512}},
            {"key": "odd", "value": {}},
        ]
        return {"spanId": "e1", "startTimeUnixNano": str(nanoseconds), "attributes": values}

    spans = [
        span(1_782_896_401_500_000_000, "chat"),
        span(1_782_896_400_000_000_000, "text_completion"),
        span(1_782_896_400_000_000_000, "execute_tool"),
    ]
    trace = opened(path, {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    seen = [(one.at_s, one.input_tokens, one.session, len(one.chain)) for one in trace]
    assert seen == [(0.0, 2100, "c-1", 2), (1.5, 2100, "c-1", 2)]
    assert (trace.fmt, trace.has_prefixes, trace.report.bad) == ("otel", True, 0)


def test_otel_content_as_text_and_as_structure_is_the_same_prompt(path: Path) -> None:
    part = [{"type": "text", "content": "You label reviews." * 40}]
    flat = {"name": "chat m", "start_time": "2026-07-01T09:00:00.120Z"}
    kv = {"kvlistValue": {"values": [
        {"key": "type", "value": {"stringValue": "text"}},
        {"key": "content", "value": {"stringValue": "You label reviews." * 40}},
    ]}}  # fmt: skip
    listed = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
        {"key": "gen_ai.system_instructions", "value": {"arrayValue": {"values": [kv]}}},
    ]
    one, two = opened(
        path,
        {**flat, "attributes": attributes(**{"gen_ai.system_instructions": json.dumps(part)})},
        {**flat, "attributes": listed},
    )
    assert len(one.chain) == 2
    assert one.chain == two.chain


def test_otel_without_content_says_so(path: Path) -> None:
    span = {"start_time": "2026-07-01T09:00:00Z", "attributes": attributes()}
    trace = opened(path, span)
    assert not trace.has_prefixes
    assert "rate models only" in trace.report.notes[0]
    assert [(one.chain, one.input_tokens) for one in trace] == [((), 2100)]


def litellm(**more: object) -> dict[str, Any]:
    tokens = {"prompt_tokens": 2100, "completion_tokens": 12, "model": "m"}
    messages = [{"role": "system", "content": "L" * 600}]
    row = {"request_id": "r", "call_type": "acompletion", "messages": messages}
    return {**row, **tokens, "startTime": 1_782_896_400.5, **more}


def test_litellm_reads_both_clocks_and_keeps_tenants_apart(path: Path) -> None:
    stored = json.dumps([{"role": "system", "content": "L" * 600}])
    one, two, three = opened(
        path,
        litellm(team_id="labels", startTime="2026-07-01T09:00:02.500Z", messages=stored),
        litellm(metadata={"user_api_key_team_id": "labels"}),
        litellm(api_key="88dc28", startTime=1_782_896_401.0),
    )
    assert [(one.at_s, one.tenant) for one in (one, two, three)] == [
        (0.0, "labels"),
        (0.5, "88dc28"),
        (2.0, "labels"),
    ]
    assert one.chain == three.chain
    assert set(one.chain).isdisjoint(two.chain)
    assert len(one.chain) == 2


def test_litellm_passes_over_what_never_reached_a_replica(path: Path) -> None:
    trace = opened(
        path, litellm(), litellm(call_type="aembedding"), litellm(cache_hit="True"), litellm()
    )
    assert len(list(trace)) == 2
    assert trace.report.bad == 0


def test_litellm_spend_rows_as_csv_have_no_prefixes_and_say_so(tmp_path: Path) -> None:
    file = tmp_path / "spend.csv"
    file.write_text(
        "request_id,call_type,api_key,startTime,model,prompt_tokens,completion_tokens,messages\n"
        "r1,acompletion,88dc28,2026-07-01 09:00:00.120,m,2100,,{}\n"
    )
    trace = open_trace(file)
    assert not trace.has_prefixes
    assert "no messages stored" in trace.report.notes[0]
    assert list(trace) == [Arrival(0.0, (), 64, 2100, 1, "88dc28", "", "r1")]
