import pytest

from models.calibration import MAX_MEAN, WEIGHT, Calibration


def test_at_first_the_model_is_taken_at_its_word() -> None:
    assert Calibration().counts(said=3.0).mean == 3.0


def test_one_label_by_hand() -> None:
    # The label counts by 4 / (1 + 4)² = 0.16, and the prior loses 4 / 5 of 1 / 2000.
    calibration = Calibration()
    calibration.learn(said=4.0, count=9)
    kept = WEIGHT * (1.0 - 0.8 / 2000.0)
    assert calibration.counts(4.0).mean == pytest.approx(4.0 * (kept + 1.44) / (kept + 0.64))


@pytest.mark.parametrize(("said", "came"), [(300.0, 600), (0.01, 300)])
def test_one_large_burst_does_not_decide(said: float, came: int) -> None:
    # A thousand lone requests forecast right, then a hundred labels of a burst that was not.
    calibration = Calibration()
    for k in range(1000):
        calibration.learn(said=0.5, count=k % 2)
    before = calibration.counts(0.5).mean
    for _ in range(100):
        calibration.learn(said=said, count=came)
    assert calibration.counts(0.5).mean < 4.0 * before


def test_it_comes_back_after_a_long_silence() -> None:
    calibration = Calibration()
    for _ in range(50_000):
        calibration.learn(said=2.0, count=0)
    assert calibration.counts(2.0).mean < 1e-3
    for _ in range(20_000):
        calibration.learn(said=2.0, count=2)
    assert calibration.counts(2.0).mean == pytest.approx(2.0, rel=0.15)


def test_absurd_words_give_a_finite_forecast() -> None:
    assert Calibration().counts(said=1e300).mean == MAX_MEAN


@pytest.mark.parametrize(
    ("name", "value"), [("version", 2), ("came", -1.0), ("claimed", 0.0), ("dispersion", None)]
)
def test_a_wrong_state_is_refused(name: str, value: float | None) -> None:
    with pytest.raises(ValueError, match=name):
        Calibration.from_state({**Calibration().to_state(), name: value})
