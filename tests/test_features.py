from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.arrival import Arrival
from forecasting.features import FEATURE_NAMES, LONGEST_S, features
from forecasting.node import PrefixNode
from forecasting.population import Population
from forecasting.stats import LEAST_SIZE, PrefixStats, decay_factors
from models.base import HALF_LIVES_S, decayed_count
from models.recurrence import KEPT, Occurrence


def node_with(times_s: list[float], parent: PrefixNode | None = None) -> PrefixNode:
    node = PrefixNode((1, 2), parent, block_tokens=512, tenant="")
    for at_s in times_s:
        node.stats.add(at_s, input_tokens=1500)
    return node


def describe(node: PrefixNode, at_s: float) -> dict[str, float]:
    nobody = Population()
    return features(node, nobody, nobody, at_s)


def test_three_arrivals_are_described_as_worked_by_hand() -> None:
    x = describe(node_with([0.0, 10.0, 25.0]), at_s=40.0)
    assert x["count_hl_15s"] == pytest.approx(2 ** (-40 / 15) + 2 ** (-30 / 15) + 2 ** (-15 / 15))
    assert x["arrivals"] == 3.0
    assert (x["gap_last_s"], x["gap_prev_s"], x["gap_3_s"]) == (15.0, 10.0, LONGEST_S)
    # 0.3 counts as one gap: (0.3 + 1 + 1) / 3.
    assert x["gap_share_15s"] == x["gap_share_60s"] == pytest.approx(2.3 / 3.0)
    assert (x["since_last_s"], x["age_s"]) == (15.0, 40.0)
    assert (x["depth_tokens"], x["input_tokens"]) == (1024.0, 1500.0)
    assert (x["bursts_seen"], x["burst_size"], x["since_burst_start_s"]) == (1.0, 3.0, 40.0)


def test_the_names_are_those_of_the_dictionary_in_order() -> None:
    assert tuple(describe(node_with([0.0]), 0.0)) == FEATURE_NAMES
    assert FEATURE_NAMES[: len(HALF_LIVES_S)] == tuple(map(decayed_count, HALF_LIVES_S))


def test_a_prompt_s_growth_is_from_the_one_before_whether_longer_or_shorter() -> None:
    stats, grown = PrefixStats(), []
    for at_s, tokens in ((0.0, 5000), (20.0, 5600), (90.0, 2100)):
        stats.add(at_s, tokens)
        grown.append(stats.input_growth_tokens)
    assert grown == [0, 600, -3500]
    # Gaps of 20 and 70 s: none within 15 s, one of two within 60 s.
    assert (stats.gap_share_15s, stats.gap_share_60s) == pytest.approx((0.1, 1.3 / 3.0))


def test_what_there_has_not_been_counts_as_a_day() -> None:
    x = describe(node_with([5.0]), at_s=5.0)
    absent = ("gap_last_s", "gap_prev_s", "burst_interval_s")
    assert {x[name] for name in absent} == {LONGEST_S}
    assert x["last_burst_size"] == 0.0


def test_a_node_without_arrivals_is_described_too() -> None:
    x = describe(node_with([]), at_s=5.0)
    assert x["arrivals"] == x["count_hl_1800s"] == 0.0


def test_a_job_that_returns_every_five_minutes_is_seen_as_bursts_at_that_interval() -> None:
    starts_s = [0.0, 300.0, 600.0, 900.0]
    times_s = [start_s + second for start_s in starts_s for second in (0.0, 1.0, 2.0)]
    x = describe(node_with([*times_s, 1200.0]), at_s=1210.0)
    assert x["bursts_seen"] == 5.0
    assert x["burst_interval_s"] == pytest.approx(300.0)
    assert (x["burst_size"], x["last_burst_size"]) == (1.0, 3.0)
    assert x["since_burst_start_s"] == 10.0


def test_the_interval_between_bursts_follows_a_schedule_that_changes() -> None:
    times_s = [1000.0 * burst for burst in range(20)]
    times_s += [times_s[-1] + 100.0 * burst for burst in range(1, 21)]
    assert describe(node_with(times_s), times_s[-1])["burst_interval_s"] < 110.0


def test_a_silence_of_exactly_a_minute_does_not_end_a_burst() -> None:
    assert describe(node_with([0.0, 60.0]), 60.0)["bursts_seen"] == 1.0
    assert describe(node_with([0.0, 60.1]), 60.1)["bursts_seen"] == 2.0


def test_a_copy_goes_its_own_way() -> None:
    stats = PrefixStats()
    stats.add(1.0, 10)
    twin = stats.copy()
    twin.add(2.0, 20)
    assert (stats.arrivals, twin.arrivals) == (1, 2)
    assert (stats.last_s, stats.input_tokens, twin.first_s) == (1.0, 10, 1.0)


def test_parent_tenant_and_everybody_are_told_apart() -> None:
    tenant, everyone = Population(), Population()
    for at_s in (0.0, 60.0):
        everyone.add(at_s)
    tenant.add(60.0)
    parent = node_with([0.0, 0.0, 0.0, 60.0])
    x = features(node_with([60.0], parent), tenant, everyone, at_s=120.0)
    assert x["parent_count_hl_60s"] == pytest.approx(3 / 4 + 1 / 2)
    assert x["tenant_count_hl_60s"] == pytest.approx(1 / 2)
    assert x["global_count_hl_60s"] == pytest.approx(1 / 4 + 1 / 2)
    assert x["global_count_hl_300s"] == pytest.approx(2 ** (-120 / 300) + 2 ** (-60 / 300))
    orphan = features(node_with([60.0]), tenant, everyone, at_s=120.0)
    assert orphan["parent_count_hl_60s"] == orphan["global_count_hl_60s"]


def test_the_share_of_siblings_asked_for_again_is_the_tenants_own_once_it_has_one() -> None:
    tenant, everyone, node = Population(), Population(), node_with([0.0])
    for repeated in (True, True, False, False):
        everyone.learn_first(repeated)
    assert features(node, tenant, everyone, 0.0)["sibling_repeat_share"] == pytest.approx(0.5)
    tenant.learn_first(repeated=True)
    assert features(node, tenant, everyone, 0.0)["sibling_repeat_share"] == 1.0


def test_the_repeat_share_forgets_what_was_long_ago() -> None:
    everyone = Population()
    for repeated in [True] * 500 + [False] * 500:
        everyone.learn_first(repeated)
    assert everyone.repeat_share < 0.001


def test_an_arrival_from_before_the_last_counts_as_coming_with_it() -> None:
    stats = PrefixStats()
    for at_s in (10.0, 4.0):
        stats.add(at_s, 1)
    assert (stats.last_s, stats.gaps_s[0], stats.counts(10.0)[0]) == (10.0, 0.0, 2.0)


gaps_s = st.lists(st.floats(0.0, 1e12), max_size=12)


@given(gaps_s=gaps_s, later_s=st.floats(0.0, 1e12))
def test_features_are_finite_floats_at_any_time_after_any_gaps(
    gaps_s: list[float], later_s: float
) -> None:
    node, everyone, now_s = node_with([]), Population(), 0.0
    for gap_s in gaps_s:
        now_s += gap_s
        node.stats.add(now_s, Arrival(now_s, (1, 2), 512, 10**9).input_tokens)
        everyone.add(now_s)
    x = features(node, Population(), everyone, now_s + later_s)
    assert all(type(value) is float and isfinite(value) and value >= 0.0 for value in x.values())


@given(gaps_s=st.lists(st.floats(0.0, 4000.0), min_size=1, max_size=12), later_s=st.floats(0, 4000))
def test_decayed_counts_are_sums_of_powers_of_two(gaps_s: list[float], later_s: float) -> None:
    times_s = [sum(gaps_s[: n + 1]) for n in range(len(gaps_s))]
    at_s = times_s[-1] + later_s
    counts = node_with(times_s).stats.counts(at_s)
    for half_life_s, count in zip(HALF_LIVES_S, counts, strict=True):
        exact = sum(2.0 ** (-(at_s - time_s) / half_life_s) for time_s in times_s)
        assert count == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_the_factors_are_those_of_the_half_lives_that_models_expect() -> None:
    for half_life_s, factor in zip(HALF_LIVES_S, decay_factors(7.0), strict=True):
        assert factor == pytest.approx(0.5 ** (7.0 / half_life_s), rel=1e-12)


def test_the_latest_bursts_that_are_over_are_kept_if_they_were_large_enough() -> None:
    stats = PrefixStats()
    for burst in range(KEPT + 2):
        for second in range(LEAST_SIZE):
            stats.add(1000.0 * burst + second)
    stats.add(50_000.0)  # one alone
    stats.add(60_000.0)
    assert len(stats.past) == KEPT
    assert stats.past[-1] == Occurrence(1000.0 * (KEPT + 1), LEAST_SIZE, LEAST_SIZE - 1.0)
    assert stats.past[0].start_s == 2000.0
    assert stats.copy().past == stats.past
