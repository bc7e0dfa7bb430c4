import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btb.simulation.bootstrap import clusters_of, compare_pairs, quantile


def test_a_percentile_is_the_one_that_the_article_reads() -> None:
    # 20 values: int(0.95 * 20) = 19, the largest; with interpolation it would be 19.05
    assert quantile(np.arange(1.0, 21.0), 0.95) == 20.0
    assert quantile(np.arange(1.0, 21.0), 0.5) == 11.0


def test_requests_of_one_minute_of_one_window_make_a_cluster() -> None:
    first, second = np.array([0.0, 59.9, 60.0, 190.0]), np.array([0.0, 60.0])
    assert clusters_of([first, second]).tolist() == [0, 0, 1, 2, 3, 4]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=40),
    st.integers(1, 5),
    st.integers(0, 2**32),
)
def test_a_policy_against_itself_differs_by_exactly_nothing(
    ttft_s: list[float], width: int, seed: int
) -> None:
    values = np.array(ttft_s)
    cluster = np.arange(len(values)) // width
    found = compare_pairs(values, values, cluster, seed=seed, resamples=50)
    assert found.mean_diff_s == found.mean_change == found.p95_change == 0.0
    if found.clusters > 1:
        assert found.mean_diff_ci_s == found.mean_change_ci == found.p95_change_ci == (0.0, 0.0)


def test_a_draw_of_clusters_gives_the_mean_and_percentile_of_the_requests_it_took() -> None:
    """The same draws, made by hand: whole clusters repeated, then mean and sorted[int(0.95 n)]."""
    rng = np.random.default_rng(4)
    cluster = np.repeat(np.arange(6), [3, 9, 1, 5, 5, 2])
    base_s, policy_s = rng.exponential(2.0, 25), rng.exponential(1.0, 25)
    found = compare_pairs(base_s, policy_s, cluster, seed=11, resamples=200)

    drawn = np.random.default_rng(11).multinomial(6, [1 / 6] * 6, size=200)
    means, changes, p95s = [], [], []
    for weights in drawn:
        taken = np.repeat(np.arange(25), weights[cluster])
        b, p = base_s[taken], policy_s[taken]
        means.append((p - b).mean())
        changes.append(p.mean() / b.mean() - 1)
        p95s.append(quantile(np.sort(p), 0.95) / quantile(np.sort(b), 0.95) - 1)
    for interval, values in (
        (found.mean_diff_ci_s, means),
        (found.mean_change_ci, changes),
        (found.p95_change_ci, p95s),
    ):
        assert interval == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])))


def test_one_cluster_gives_no_interval() -> None:
    found = compare_pairs(np.array([2.0, 4.0]), np.array([1.0, 2.0]), np.array([0, 0]), seed=1)
    assert found.mean_change == -0.5
    assert np.isnan(found.mean_change_ci).all()
    assert np.isnan(found.mean_diff_ci_s).all()
    assert np.isnan(found.p95_change_ci).all()


def test_the_same_seed_gives_the_same_interval_and_another_one_nearly() -> None:
    rng = np.random.default_rng(0)
    base_s, policy_s = rng.exponential(2.0, 400), rng.exponential(1.0, 400)
    cluster = np.arange(400) // 10
    one, again, other = (
        compare_pairs(base_s, policy_s, cluster, seed=seed).mean_change_ci for seed in (1, 1, 2)
    )
    assert one == again != other
    assert one == pytest.approx(other, abs=0.05)


def _trial(rng: np.random.Generator) -> tuple[bool, bool]:
    """Draw 60 clusters of 10 requests that share a shift, so requests are far from independent.

    True difference of the means: -0.5. Returns whether the clustered interval and the one that
    takes requests for independent hold it.
    """
    cluster = np.repeat(np.arange(60), 10)
    base_s = 5.0 + rng.normal(size=600) * 0.2
    policy_s = base_s - 0.5 + rng.normal(size=60)[cluster] * 0.3 + rng.normal(size=600) * 0.1
    seed = int(rng.integers(2**32))
    holds = []
    for owner in (cluster, np.arange(600)):
        low, high = compare_pairs(base_s, policy_s, owner, seed=seed, resamples=200).mean_diff_ci_s
        holds.append(low <= -0.5 <= high)
    return holds[0], holds[1]


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2026)
    clustered, independent = np.mean([_trial(rng) for _ in range(200)], axis=0)
    assert 0.90 <= clustered <= 0.985  # 95 % nominal; a percentile interval is a bit narrow
    assert independent < 0.6  # what ignoring the clusters would claim to be 95 %
