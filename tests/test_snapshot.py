from models.base import Features
from models.checks import TYPICAL
from models.snapshot import Snapshot, recall


def test_what_is_made_of_a_snapshot_is_made_once() -> None:
    asked: list[Features] = []

    def total(x: Features) -> float:
        asked.append(x)
        return sum(x.values())

    x = Snapshot([("a", 1.0), ("b", 2.0)])
    assert [recall(x, total), recall(x, total)] == [3.0, 3.0]
    assert asked == [x]
    recall(Snapshot([("a", 1.0)]), total)
    assert len(asked) == 2


def test_of_features_that_may_change_it_is_made_each_time() -> None:
    x = {"a": 1.0}
    before = recall(x, lambda x: x["a"])
    x["a"] = 5.0
    assert (before, recall(x, lambda x: x["a"])) == (1.0, 5.0)


def test_a_snapshot_is_a_dictionary_of_its_features() -> None:
    x = Snapshot(TYPICAL.items())
    recall(x, len)
    assert x == TYPICAL
    assert list(x) == list(TYPICAL)
