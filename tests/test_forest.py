import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.forest import LEAF, MAX_LEAVES, Forest, Tree

INPUTS = 3
VALUES = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0])


def leaf(value: float) -> Tree:
    return Tree((LEAF,), (value,))


def node(one: int, threshold: float, left: Tree, right: Tree) -> Tree:
    return Tree((one, *left.inputs, *right.inputs), (threshold, *left.numbers, *right.numbers))


trees = st.recursive(
    VALUES.map(leaf),
    lambda below: st.builds(node, st.integers(0, INPUTS - 1), VALUES, below, below),
    max_leaves=MAX_LEAVES,
)


def walk(tree: Tree, x: list[float], at: int = 0) -> tuple[float, int]:
    """Return the value of the leaf that `x` gets to, the plain way, and where its subtree ends."""
    one, number = tree.inputs[at], tree.numbers[at]
    if one == LEAF:
        return number, at + 1
    left, middle = walk(tree, x, at + 1)
    right, end = walk(tree, x, middle)
    return (left if x[one] <= number else right), end


def test_two_splits_by_hand() -> None:
    #        x0 <= 5
    #   x1 <= 2      30
    #   10   20
    tree = node(0, 5.0, node(1, 2.0, leaf(10.0), leaf(20.0)), leaf(30.0))
    forest = Forest([tree, leaf(0.5)])
    assert forest.sum([5.0, 2.0]) == 10.5
    assert forest.sum([5.0, 2.1]) == 20.5
    assert forest.sum([5.1, 2.0]) == 30.5


@given(st.lists(trees, min_size=1, max_size=5), st.lists(VALUES, min_size=INPUTS, max_size=INPUTS))
def test_it_ends_where_walking_down_each_tree_ends(grown: list[Tree], x: list[float]) -> None:
    expected = 0.0
    for tree in grown:
        expected += walk(tree, x)[0]
    assert Forest(grown).sum(x) == expected


def test_a_tree_with_most_leaves_uses_every_bit() -> None:
    chain = leaf(float(MAX_LEAVES - 1))
    for k in reversed(range(MAX_LEAVES - 1)):
        chain = node(0, float(k), leaf(float(k)), chain)
    forest = Forest([chain])
    assert [forest.sum([k - 0.5]) for k in range(MAX_LEAVES)] == list(range(MAX_LEAVES))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), "1 nodes are missing"),
        ((0, LEAF), "1 nodes are missing"),
        ((LEAF, LEAF), "ends at node 1, but 2 are given"),
        ((-2, LEAF, LEAF), "input should be -1 or more, got -2"),
        ((*[0] * MAX_LEAVES, *[LEAF] * (MAX_LEAVES + 1)), "at most 32 leaves"),
    ],
)
def test_what_is_no_tree_is_refused(inputs: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tree(inputs, (0.0,) * len(inputs))


def test_a_forest_needs_a_tree_and_has_room_for_so_many() -> None:
    for count in (0, 513):
        with pytest.raises(ValueError, match=f"1 to 512 trees, got {count}"):
            Forest([leaf(1.0)] * count)
