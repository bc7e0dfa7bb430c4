"""What holds for all chains: equal prefix and equal hash are the same thing."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from btb.traces import arrival_from_row, arrival_to_row
from btb.traces.fields import BadField
from btb.traces.formats.ragpulse import pseudo_blocks
from btb.traces.hashing import Chainer, chained, root, shared, text_blocks
from btb.traces.prompts import messages_text
from btb.traces.sessions import decoded, encoded
from forecasting.arrival import Arrival

IDS = st.lists(st.integers(0, 3) | st.integers(0, 2**64 - 1), max_size=8)
NAMES = st.text(max_size=4)


def common(one: Sequence[object], other: Sequence[object]) -> int:
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length


@given(IDS, IDS)
def test_hashes_are_equal_exactly_as_far_as_the_ids_are(one: list[int], other: list[int]) -> None:
    start = root(16)
    chains = chained(one, start), chained(other, start)
    depth = common(one, other)
    assert chains[0][:depth] == chains[1][:depth]
    assert set(chains[0][depth:]).isdisjoint(chains[1][depth:])
    assert all(0 <= value < 2**64 for value in chains[0])


@given(st.lists(NAMES, min_size=4, max_size=4), st.lists(NAMES, min_size=4, max_size=4))
def test_two_tenants_never_meet(one: list[str], other: list[str]) -> None:
    starts = [
        root(16, tenant=tenant, model=model, lora=lora, scope=scope)
        for tenant, model, lora, scope in (one, other)
    ]
    assert (starts[0] == starts[1]) == (one == other)
    if one != other:
        chains = [set(chained([1, 2, 3], start)) for start in starts]
        assert chains[0].isdisjoint(chains[1])


def test_another_block_size_is_another_root() -> None:
    assert root(16) != root(32)


@given(st.lists(IDS, max_size=6))
def test_a_chainer_says_what_chaining_anew_says(calls: list[list[int]]) -> None:
    chainer = Chainer(root(16))
    for ids in calls:
        assert chainer.chain(ids) == chained(ids, root(16))


@given(IDS, IDS)
def test_shared_counts_the_leading_equal_ids(one: list[int], other: list[int]) -> None:
    assert shared(one, other) == common(one, other)


@given(IDS, IDS)
def test_encoded_ids_come_back(ids: list[int], before: list[int]) -> None:
    keep, runs = encoded(ids, before)
    assert decoded(keep, runs, before) == ids


@given(st.text("ab", max_size=40), st.text("ab", max_size=40))
def test_texts_share_blocks_exactly_as_far_as_they_are_equal(one: str, other: str) -> None:
    chains = [chained(text_blocks(content, 1), root(1)) for content in (one, other)]
    assert common(*chains) == min(common(one, other), len(one), len(other)) // 4


def test_text_that_is_no_valid_unicode_is_hashed_all_the_same() -> None:
    assert len(list(text_blocks("\ud800" * 8, 1))) == 2


MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.just("user"), "content": st.text(max_size=3)})
)


@given(MESSAGES, MESSAGES)
def test_a_conversation_that_goes_on_begins_with_the_earlier_one(
    one: list[dict[str, str]], more: list[dict[str, str]]
) -> None:
    assert messages_text(one + more).startswith(messages_text(one))
    assert messages_text(json.dumps(one)) == messages_text(one)


PIECES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), max_size=6)


@given(PIECES)
def test_pseudo_blocks_cover_all_whole_blocks(pieces: list[tuple[int, int]]) -> None:
    assert len(list(pseudo_blocks(pieces, 16))) == sum(tokens for _, tokens in pieces) // 16


@given(PIECES, PIECES, PIECES)
def test_prompts_of_equal_pieces_share_the_blocks_those_fill(
    head: list[tuple[int, int]], one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    filled = sum(tokens for _, tokens in head) // 16
    blocks = [list(pseudo_blocks(head + tail, 16)) for tail in (one, other)]
    assert blocks[0][:filled] == blocks[1][:filled]


ARRIVALS = st.builds(
    Arrival,
    at_s=st.floats(0.0, 1e9),
    chain=st.lists(st.integers(0, 2**64 - 1), max_size=5).map(tuple),
    block_tokens=st.integers(1, 4096),
    input_tokens=st.integers(0, 2**40),
    output_tokens=st.integers(0, 2**40),
    tenant=st.text(),
    session=st.text(),
    request_id=st.text(),
)


@given(ARRIVALS)
def test_an_arrival_comes_back_from_the_log(arrival: Arrival) -> None:
    assert arrival_from_row(json.loads(json.dumps(arrival_to_row(arrival)))) == arrival


@pytest.mark.parametrize(
    ("field", "value"),
    [("v", 2), ("kind", "outcome"), ("at_s", -1.0), ("block_tokens", 0), ("tenant", 7)],
)
def test_an_object_that_is_no_arrival_is_refused(field: str, value: object) -> None:
    row = arrival_to_row(Arrival(0.0, (1,), 16, 16))
    with pytest.raises(BadField, match=field):
        arrival_from_row({**row, field: value})
