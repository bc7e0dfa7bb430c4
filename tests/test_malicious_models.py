"""Files that would run code if anybody let them: they are refused, and nothing runs."""

import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
import pytest

from btb.errors import ConfigError
from btb.tracking import load_checkpoint
from models import MODELS, Learner
from models.arrays import array_state, read_array
from models.base import Features
from models.checkpoint import MAX_BYTES, Checkpoint, load, save, to_json
from models.counts import Counts
from models.state import State, check_version, read_number, to_text


class Weighted:
    """Sums up what it is told: a learner that keeps an array, as a neural network does."""

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self.weights = np.zeros(3, dtype="<f4")

    def predict_one(self, x: Features) -> Counts:
        return Counts(float(self.weights.sum()))

    def learn_one(self, x: Features, count: int) -> None:
        self.weights[count % 3] += 1.0

    def to_state(self) -> State:
        return {"version": 1, "horizon_s": self._horizon_s, "weights": array_state(self.weights)}

    @classmethod
    def from_state(cls, state: State) -> Self:
        check_version(state, 1)
        model = cls(read_number(state, "horizon_s"))
        model.weights = read_array(state, "weights", "<f4", (3,))
        return model


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a checkpoint of `Weighted`, which is known as `weighted` for the time being."""
    module = ModuleType("weighted_for_a_test")
    module.Weighted = Weighted  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(MODELS, "weighted", Learner(module.__name__, "Weighted"))
    model = Weighted(15.0)
    for count in (0, 1, 1, 2):
        model.learn_one({}, count)
    path = tmp_path / "model.json"
    save(Checkpoint("weighted", {15.0: model}, 2048), path)
    return path


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (subprocess.call, (["touch", str(self._mark)],))


def test_bytes_come_back_as_they_were(saved: Path) -> None:
    loaded = load(saved).models[15.0]
    assert isinstance(loaded, Weighted)
    assert loaded.weights.tolist() == [1.0, 2.0, 1.0]
    assert to_json(load(saved)) == saved.read_text(encoding="utf-8")


def test_a_pickle_would_run_and_is_refused(tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / "model.json"
    for protocol in (0, 5):  # 0 is text, which gets as far as the JSON reader
        path.write_bytes(pickle.dumps(Bomb(mark), protocol=protocol))
        with pytest.raises(ConfigError, match=r"is no checkpoint of btb's: no JSON"):
            load_checkpoint(str(path))
        assert not mark.exists()
    pickle.loads(path.read_bytes())  # noqa: S301 - to show that the bomb is one
    assert mark.exists()


def zipped_pickle(bomb: Bomb) -> bytes:
    """Make what `torch.save` makes: a zip whose data.pkl `torch.load` may unpickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(bomb))
    return out.getvalue()


def skops_file(bomb: Bomb) -> bytes:
    """Make a skops file, which `skops.io.load` would run if it were told to trust it."""
    call = {"__class__": "call", "__module__": "subprocess", "__loader__": "FunctionNode"}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("schema.json", json.dumps({**call, "protocol": 2, "__id__": 1}))
    return out.getvalue()


@pytest.mark.parametrize("make", [pickle.dumps, zipped_pickle, skops_file])
def test_what_others_would_unpickle_is_no_array(
    make: Callable[[Bomb], bytes], saved: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    data = make(Bomb(mark))
    for weights in (data, {**array_state(np.zeros(3, dtype="<f4")), "data": data}):
        content: Any = json.loads(saved.read_text(encoding="utf-8"))
        wrapped = json.loads(to_text({"weights": weights}))
        content["models"][0]["state"]["weights"] = wrapped["weights"]
        saved.write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(ConfigError, match=r"models\[0\]: (weights|data) should"):
            load_checkpoint(str(saved))
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["subprocess.call", "os:system", "models.ewma.Ewma", "../../evil", "weighted "]
)
def test_only_learners_by_name_are_made(name: str, saved: Path) -> None:
    content: Any = json.loads(saved.read_text(encoding="utf-8"))
    saved.write_text(json.dumps({**content, "name": name}), encoding="utf-8")
    with pytest.raises(ConfigError, match="no model is called"):
        load_checkpoint(str(saved))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "00"}, "12 bytes are not what their sha256 says"),
        ({"base64": "AAAA"}, "3 bytes are not what their sha256 says"),
        ({"base64": 7}, "base64 should be a string, got 7"),
        ({"base64": "!"}, "base64"),
    ],
)
def test_damaged_bytes_are_refused(change: dict[str, Any], message: str, saved: Path) -> None:
    content: Any = json.loads(saved.read_text(encoding="utf-8"))
    content["models"][0]["state"]["weights"]["data"] |= change
    saved.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_checkpoint(str(saved))


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ConfigError, match=f"at most {MAX_BYTES} are read"):
        load_checkpoint(str(path))
