from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forecasting.arrival import Arrival
from forecasting.node import PrefixNode
from forecasting.prefix import PrefixTree

Chain = tuple[int, ...]


def observe(
    tree: PrefixTree, chain: Chain, boundary_blocks: int = 1, at_s: float = 0.0
) -> list[PrefixNode]:
    return tree.observe(Arrival(at_s, chain, 16, 16 * len(chain)), at_s, boundary_blocks)


def shape(path: Sequence[PrefixNode]) -> list[tuple[Chain, int]]:
    return [(node.blocks, node.stats.arrivals) for node in path]


def cumulative(letters: Sequence[int]) -> Chain:
    """A chain in which an equal hash means an equal prefix: each is the prefix as digits."""
    chain, value = [], 1
    for letter in letters:
        value = value * 10 + letter
        chain.append(value)
    return tuple(chain)


def check_structure(tree: PrefixTree) -> None:
    nodes = list(tree.nodes())
    children = Counter(node.parent for node in nodes)
    order = {node: index for index, node in enumerate(nodes)}
    for node in nodes:
        assert node.alive
        assert node.blocks
        assert node.end == node.start + len(node.blocks)
        assert node.children == children[node]
        assert node.start == (node.parent.end if node.parent else 0)
        if node.parent:
            assert order[node] < order[node.parent]
            assert node.parent.stats.arrivals >= 1
        for block in node.blocks:
            assert tree.find(block) is node
    assert sum(len(node.blocks) for node in nodes) == len(tree)


letters = st.lists(st.integers(0, 2), max_size=8)
chains = st.lists(letters.map(cumulative), max_size=25)


def test_the_first_chain_is_cut_at_the_boundary_only() -> None:
    path = observe(PrefixTree(100), (1, 2, 3, 4, 5), boundary_blocks=2)
    assert shape(path) == [((1, 2), 1), ((3, 4, 5), 1)]
    assert [(node.key, node.end, node.tokens) for node in path] == [(2, 2, 32), (5, 5, 80)]


def test_a_chain_that_leaves_a_run_splits_it_and_the_upper_part_has_all_arrivals() -> None:
    tree = PrefixTree(100)
    observe(tree, (1, 2, 3, 4, 5))
    observe(tree, (1, 2, 3, 4, 5))
    path = observe(tree, (1, 2, 3, 8, 9))
    assert shape(path) == [((1,), 3), ((2, 3), 3), ((8, 9), 1)]
    assert shape(tree.path((1, 2, 3, 4, 5))) == [((1,), 3), ((2, 3), 3), ((4, 5), 2)]


def test_a_chain_that_ends_within_a_run_splits_it() -> None:
    tree = PrefixTree(100)
    observe(tree, (1, 2, 3, 4))
    assert shape(observe(tree, (1, 2))) == [((1,), 2), ((2,), 2)]
    assert shape(tree.path((1, 2, 3, 4))) == [((1,), 2), ((2,), 2), ((3, 4), 1)]


def test_a_conversation_that_grows_stays_one_node_below_the_boundary() -> None:
    tree = PrefixTree(10_000)
    conversation: Chain = ()
    for turn in range(300):
        conversation += (3 * turn, 3 * turn + 1, 3 * turn + 2)
        path = observe(tree, conversation, boundary_blocks=2)
    assert shape(path) == [((0, 1), 300), (tuple(range(2, 900)), 300)]


def test_above_the_boundary_nothing_grows_so_the_boundary_counts_its_own_arrivals_only() -> None:
    tree = PrefixTree(100)
    for chain in [(1,), (1,), (1, 2), (1, 2, 3, 4)]:
        path = observe(tree, chain, boundary_blocks=3)
    assert shape(path) == [((1,), 4), ((2,), 2), ((3,), 1), ((4,), 1)]


def test_a_node_at_the_boundary_stays_the_same_object_when_traffic_branches_above_it() -> None:
    tree = PrefixTree(100)
    boundary = observe(tree, (1, 2, 3, 4), boundary_blocks=3)[0]
    observe(tree, (1, 7, 8, 9), boundary_blocks=3)
    assert tree.find(3) is boundary
    assert shape(tree.path((1, 2, 3, 4))) == [((1,), 2), ((2, 3), 1), ((4,), 1)]


def test_a_path_leaves_out_a_run_that_the_chain_does_not_cover() -> None:
    tree = PrefixTree(100)
    observe(tree, (1, 2, 3, 4), boundary_blocks=2)
    assert shape(tree.path((1, 2, 3))) == [((1, 2), 1)]
    assert shape(tree.path((1,))) == []
    assert shape(tree.path((9, 9))) == []
    assert shape(tree.path(())) == []


def test_the_least_recently_used_leaf_goes_first_and_leaves_its_parent_a_leaf() -> None:
    tree = PrefixTree(max_blocks=6)
    observe(tree, (1, 2, 3))
    old = tree.find(3)
    observe(tree, (1, 4, 5))
    observe(tree, (1, 2, 3))
    path = observe(tree, (6, 7))
    assert shape(path) == [((6,), 1), ((7,), 1)]
    assert tree.find(4) is None
    assert tree.find(3) is old
    assert (len(tree), tree.pruned) == (5, 1)
    observe(tree, (8, 9))
    assert tree.find(3) is None
    assert old is not None
    assert not old.alive
    assert shape(tree.path((1, 2, 3))) == [((1,), 3)]
    check_structure(tree)


def test_making_room_never_takes_what_the_arrival_itself_goes_through() -> None:
    tree = PrefixTree(max_blocks=4)
    observe(tree, (1, 2))
    observe(tree, (3, 4))
    assert shape(observe(tree, (1, 2, 5, 6))) == [((1,), 2), ((2, 5, 6), 2)]
    assert tree.find(3) is None
    check_structure(tree)


def test_a_chain_longer_than_the_cap_is_cut_and_counted() -> None:
    tree = PrefixTree(max_blocks=3)
    assert shape(observe(tree, (1, 2, 3, 4, 5))) == [((1,), 1), ((2, 3), 1)]
    assert (len(tree), tree.cut) == (3, 1)


@pytest.mark.parametrize(
    "chain",
    [
        pytest.param((5, 5), id="one hash twice"),
        pytest.param((9, 2), id="a known hash after a new one"),
        pytest.param((2, 9), id="a known hash at another depth"),
        pytest.param((1, 9, 3), id="a known hash at another depth, last"),
    ],
)
def test_hashes_that_are_not_cumulative_are_counted_and_change_nothing(chain: Chain) -> None:
    tree = PrefixTree(100)
    observe(tree, (1, 2))
    observe(tree, (1, 4, 6, 3))
    assert observe(tree, chain) == []
    assert (tree.broken, len(tree)) == (1, 5)
    assert shape(tree.path((1, 2))) == [((1,), 2), ((2,), 1)]
    check_structure(tree)


def test_an_empty_chain_has_no_path() -> None:
    assert observe(PrefixTree(10), ()) == []


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_blocks must be at least 1, got 0"):
        PrefixTree(0)


@given(chains=chains, boundary=st.integers(1, 5))
def test_counts_down_to_the_boundary_and_matches_are_those_of_a_plain_dictionary(
    chains: list[Chain], boundary: int
) -> None:
    tree = PrefixTree(10_000)
    seen: Counter[Chain] = Counter()
    for chain in chains:
        known = max((n for n in range(len(chain) + 1) if seen[chain[:n]]), default=0)
        assert tree.match(chain) == known
        path = observe(tree, chain, boundary)
        assert path == tree.path(chain)
        assert [block for node in path for block in node.blocks] == list(chain)
        seen.update(chain[:n] for n in range(1, len(chain) + 1))
        check_structure(tree)
    for prefix, count in seen.items():
        node = tree.find(prefix[-1])
        assert node is not None
        assert node.start < len(prefix) <= node.end
        if len(prefix) == boundary:
            assert node.end == boundary
        if node.end == len(prefix) <= boundary:
            assert node.stats.arrivals == count
        assert node.stats.arrivals >= (count if node.end == len(prefix) else 1)
    for node in tree.nodes():
        assert node.start >= boundary or node.end <= boundary


@given(chains=chains, boundary=st.integers(1, 5), cap=st.integers(1, 12))
@example(chains=[(1, 12), (1, 13), (2, 21), (1, 12)], boundary=1, cap=3)
def test_the_cap_holds_after_every_arrival_whatever_comes(
    chains: list[Chain], boundary: int, cap: int
) -> None:
    tree = PrefixTree(cap)
    for chain in chains:
        path = observe(tree, chain, boundary)
        assert [block for node in path for block in node.blocks] == list(chain[:cap])
        assert len(tree) <= cap
        check_structure(tree)


def test_a_hundred_thousand_prompts_that_share_nothing_stay_under_the_cap() -> None:
    tree = PrefixTree(max_blocks=2_000)
    for prompt in range(100_000):
        observe(tree, (4 * prompt, 4 * prompt + 1, 4 * prompt + 2, 4 * prompt + 3), 2)
        assert len(tree) <= 2_000
    assert tree.pruned == 2 * 99_500
    check_structure(tree)
