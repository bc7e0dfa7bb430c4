from hypothesis import given
from hypothesis import strategies as st

from btb.simulation.runs import cut_into_runs
from forecasting.arrival import Arrival

words = st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=12)


def arrivals_of(words: list[list[int]]) -> list[Arrival]:
    """Make a chain of each word: a block's hash stands for the word up to and including it."""
    hashes: dict[tuple[int, ...], int] = {}
    made = []
    for word in words:
        prefixes = [tuple(word[: depth + 1]) for depth in range(len(word))]
        chain = tuple(hashes.setdefault(prefix, len(hashes) + 1) for prefix in prefixes)
        made.append(
            Arrival(at_s=0.0, chain=chain, block_tokens=16, input_tokens=16 * len(chain) + 1)
        )
    return made


@given(words)
def test_the_runs_of_a_chain_are_as_long_as_the_chain(words: list[list[int]]) -> None:
    arrivals = arrivals_of(words)
    runs = cut_into_runs(arrivals)
    for arrival, path in zip(arrivals, runs.paths, strict=True):
        assert sum(runs.blocks[run] for run in path) == len(arrival.chain)


@given(words)
def test_two_chains_share_exactly_the_runs_of_what_they_share(words: list[list[int]]) -> None:
    arrivals = arrivals_of(words)
    runs = cut_into_runs(arrivals)
    for one, path in zip(arrivals, runs.paths, strict=True):
        for other, other_path in zip(arrivals, runs.paths, strict=True):
            same = 0
            while same < min(len(one.chain), len(other.chain)):
                if one.chain[same] != other.chain[same]:
                    break
                same += 1
            shared = [a for a, b in zip(path, other_path, strict=False) if a == b]
            assert sum(runs.blocks[run] for run in shared) == same


@given(words, st.integers(1, 6))
def test_any_beginning_of_a_chain_finds_the_runs_that_cover_it(
    words: list[list[int]], depth: int
) -> None:
    arrivals = arrivals_of(words)
    runs = cut_into_runs(arrivals)
    for arrival, path in zip(arrivals, runs.paths, strict=True):
        beginning = arrival.chain[:depth]
        found = runs.path(beginning)
        assert path[: len(found)] == found
        covered = sum(runs.blocks[run] for run in found)
        before = covered - (runs.blocks[found[-1]] if found else 0)
        assert before < len(beginning) <= covered or not beginning


def test_a_chain_that_no_arrival_brought_has_no_runs() -> None:
    runs = cut_into_runs(arrivals_of([[0, 1]]))
    assert runs.path((999,)) == ()
    assert runs.path(()) == ()
