import json
from pathlib import Path
from typing import Any

import pytest

from models import MODELS, make_models
from models.checkpoint import Checkpoint, from_json, load, save, to_json
from models.checks import TYPICAL


def trained(name: str) -> Checkpoint:
    models = make_models(name)
    for horizon_s, model in models.items():
        for k in range(50):
            model.learn_one(TYPICAL, k % 3 + int(horizon_s > 10.0))
    return Checkpoint(name, models, boundary_tokens=1024, traces={"monday": "ab12"})


@pytest.mark.parametrize("name", MODELS)
def test_what_is_loaded_predicts_what_was_saved(name: str, tmp_path: Path) -> None:
    saved = trained(name)
    path = tmp_path / "new" / "model.json"
    save(saved, path)
    loaded = load(path)
    assert (loaded.name, loaded.boundary_tokens, loaded.traces) == (name, 1024, {"monday": "ab12"})
    for horizon_s, model in saved.models.items():
        assert loaded.models[horizon_s].predict_one(TYPICAL) == model.predict_one(TYPICAL)
    assert to_json(loaded) == to_json(saved)
    assert [one.name for one in path.parent.iterdir()] == ["model.json"]


def change(content: dict[str, Any], path: str, value: Any) -> None:
    """Set content[a][b]... for a path like a.b; the value None takes it away."""
    *parents, last = path.split(".")
    at: Any = content
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "other", "format should be 'btb-models', got 'other'"),
        ("version", 99, "version should be 1, got 99"),
        ("name", "riber", "no model is called 'riber'; did you mean 'river'"),
        ("name", None, "name should be a string"),
        ("boundary_tokens", 0, r"boundary_tokens should lie in \[1, inf\], got 0"),
        ("traces", [1], "traces should map names to digests"),
        ("traces.monday", 3, "digest of trace 'monday' should be a string"),
        ("models", [], "models should be a list"),
        ("models.0.state", None, r"models\[0\] should hold horizon_s and state"),
        ("models.1.horizon_s", "5", r"models\[1\]: horizon_s should be a finite number, got '5'"),
        ("models.1.horizon_s", 6.0, r"models\[1\]: horizon_s is not that of the state"),
        ("models.2.state.came", -1.0, r"models\[2\]: came should lie in"),
        ("models.2.state.came", True, r"models\[2\]: came should be a finite number, got True"),
        ("models.2.state.claimed", 10**400, r"models\[2\]: claimed should be a finite number"),
        ("models.3.state.dispersion.excess", [1.0], r"models\[3\]: excess should have 9 numbers"),
        ("models.3.state.version", 2, r"models\[3\]: version should be 1, got 2"),
    ],
)
def test_a_damaged_field_is_named(path: str, value: Any, message: str) -> None:
    content = json.loads(to_json(trained("ewma")))
    change(content, path, value)
    with pytest.raises(ValueError, match=message):
        from_json(json.dumps(content))


def test_horizons_have_to_rise() -> None:
    content = json.loads(to_json(trained("ewma")))
    content["models"].reverse()
    with pytest.raises(ValueError, match="horizons should rise"):
        from_json(json.dumps(content))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"format": NaN}', "null"])
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|format"):
        from_json(text)


def test_a_number_that_is_not_finite_is_refused() -> None:
    text = to_json(trained("ewma")).replace('"boundary_tokens": 1024', '"boundary_tokens": NaN')
    with pytest.raises(ValueError, match="boundary_tokens should be a finite number"):
        from_json(text)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    save(trained("ewma"), path)
    before = path.read_text()
    (tmp_path / "model.json.part").mkdir()
    with pytest.raises(OSError, match=r"model\.json\.part"):
        save(trained("hawkes"), path)
    assert path.read_text() == before
