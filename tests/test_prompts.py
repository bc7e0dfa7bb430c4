"""What followed a prompt: counted, kept by kind, and expected of the next one like it."""

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from forecasting.offspring import KEPT, PRIOR_CLAIM, Offspring, Outcome, Sofar, pooled, to_come
from forecasting.prompts import MAX_OPEN
from forecasting.tracker import PrefixTracker
from models.ewma import Ewma

TEMPLATE, LONER = (1, 2), (101, 102)
NOTHING = Outcome(inf, 0, 0.0)


def request(at_s: float, chain: tuple[int, ...], tokens: int = 0, tenant: str = "") -> Arrival:
    return Arrival(at_s, chain, 1024, tokens or 1024 * len(chain), tenant=tenant)


def fan_out(tracker: PrefixTracker | Forecaster, at_s: float, name: int, children: int = 5) -> None:
    """A parent below `TEMPLATE`, and 5 s later its children, 1 s apart."""
    parent = (*TEMPLATE, name)
    tracker.observe(request(at_s, parent))
    for child in range(children):
        tracker.observe(request(at_s + 5.0 + child, (*parent, name + 1 + child)))


def test_requests_that_go_on_from_a_prompt_are_counted_until_its_minute_is_over() -> None:
    tracker = PrefixTracker()
    fan_out(tracker, 10.0, 1000)
    prompt = tracker.prompts.find(1000)
    assert prompt is not None
    assert prompt.outcome() == Outcome(delay_s=5.0, requests=5, span_s=4.0)
    tracker.observe(request(70.0, (*TEMPLATE, 2000)))
    assert tracker.prompts.find(1000) is not None
    tracker.observe(request(70.5, (*TEMPLATE, 3000)))
    assert tracker.prompts.find(1000) is None


def test_a_block_that_a_prompt_fills_only_in_part_is_not_what_others_go_on_from() -> None:
    tracker = PrefixTracker()
    tracker.observe(request(0.0, (*TEMPLATE, 7, 8), tokens=3 * 1024 + 100))
    assert tracker.prompt is not None
    assert (tracker.prompt.key, tracker.prompt.blocks, tracker.prompt.tokens) == (7, 3, 3072)
    tracker.observe(request(1.0, (*TEMPLATE, 7, 9)))
    found = tracker.prompts.find(7)
    assert found is not None
    assert found.count == 1


def test_a_prompt_no_longer_than_the_boundary_is_not_watched() -> None:
    tracker = PrefixTracker()
    tracker.observe(request(0.0, TEMPLATE))
    assert tracker.prompt is None
    assert not len(tracker.prompts)


def test_the_same_prompt_again_counts_for_the_first() -> None:
    tracker = PrefixTracker()
    for at_s in (0.0, 1.0, 2.0):
        tracker.observe(request(at_s, (*TEMPLATE, 7)))
    assert len(tracker.prompts) == 1
    assert tracker.prompt is not None
    assert tracker.prompt.outcome() == Outcome(delay_s=1.0, requests=2, span_s=1.0)


def test_no_more_prompts_are_watched_than_there_is_room_for() -> None:
    tracker = PrefixTracker()
    for name in range(MAX_OPEN + 3):
        tracker.observe(request(0.0, (*TEMPLATE, 1000 + name)))
    assert len(tracker.prompts) == MAX_OPEN
    assert tracker.prompts.unwatched == 3
    assert tracker.prompt is None


def test_a_parent_is_told_from_a_loner_by_what_others_below_its_template_did() -> None:
    forecaster = Forecaster({60.0: Ewma(60.0, 60.0)})
    for number in range(12):
        fan_out(forecaster, 100.0 * number, 1000 + 100 * number)
        forecaster.observe(request(100.0 * number + 50.0, (*LONER, 50_000 + number)))
    parent, loner = request(1300.0, (*TEMPLATE, 9000)), request(1301.0, (*LONER, 9001))
    forecaster.observe(parent)
    told = forecaster.forecast_path(parent)[-1]
    assert (told.prefix.key, told.prefix.blocks, told.seen) == (9000, 3, 1)
    assert told.counts[60.0].at_least(3) > 0.7
    assert told.mean(60.0) == pytest.approx(4.2, abs=0.4)  # the loners of all count a little
    forecaster.observe(loner)
    assert [one.prefix.key for one in forecaster.forecast_path(loner)] == [102]


def test_before_the_first_child_and_among_them_what_is_left_is_told() -> None:
    forecaster = Forecaster({1.0: Ewma(1.0, 60.0), 60.0: Ewma(60.0, 60.0)})
    for number in range(KEPT):
        fan_out(forecaster, 100.0 * number, 1000 + 100 * number)
    forecaster.observe(request(5000.0, (*TEMPLATE, 9000)))
    early, soon = forecaster.forecast(9000, 5001.0), forecaster.forecast(9000, 5004.5)
    assert early is not None
    assert soon is not None
    assert (early.returns[1.0], soon.returns[1.0]) == (0.0, 1.0)
    forecaster.observe(request(5005.0, (*TEMPLATE, 9000, 9001)))
    forecaster.observe(request(5006.0, (*TEMPLATE, 9000, 9002)))
    among = forecaster.forecast(9000, 5006.0)
    assert among is not None
    assert among.seen == 3
    assert among.mean(60.0) == pytest.approx(3.0)  # of five children


def test_a_tenant_without_a_history_gets_what_all_do_and_one_with_its_own() -> None:
    forecaster = Forecaster({60.0: Ewma(60.0, 60.0)})
    for number in range(12):
        fan_out(forecaster, 100.0 * number, 1000 + 100 * number)
        for quiet in range(3):
            chain = (201, 202, 60_000 + 3 * number + quiet)
            forecaster.observe(request(100.0 * number + 20.0, chain, tenant="quiet"))
    for block, tenant in ((301, "new"), (401, "quiet")):
        forecaster.observe(request(1300.0, (block, block + 1, block + 2), tenant=tenant))
    new, calm = forecaster.forecast(303, 1300.0), forecaster.forecast(403, 1300.0)
    assert new is not None
    assert calm is not None
    assert calm.mean(60.0) < 0.6 * new.mean(60.0)


def test_pooling_weighs_the_wider_kinds_as_a_few_prompts() -> None:
    own, wide = Offspring(), Offspring()
    own.add(Outcome(1.0, 4, 2.0))
    for _ in range(10):
        wide.add(NOTHING)
    weights = [one.weight for one in pooled([own, wide])]
    assert weights[0] == 1.0
    assert sum(weights[1:]) == pytest.approx(PRIOR_CLAIM)


outcomes = st.one_of(
    st.just(NOTHING),
    st.builds(Outcome, st.floats(0.0, 60.0), st.integers(1, 50), st.floats(0.0, 60.0)),
)


@given(
    seen=st.lists(outcomes, min_size=1, max_size=2 * KEPT),
    since_s=st.floats(0.0, 60.0),
    requests=st.integers(0, 5),
)
def test_longer_horizons_never_expect_less(
    seen: list[Outcome], since_s: float, requests: int
) -> None:
    kind = Offspring()
    for outcome in seen:
        kind.add(outcome)
    assert len(kind) <= KEPT
    assert kind.mean == pytest.approx(sum(one.requests for one in kind) / len(kind))
    sofar = Sofar(since_s, requests, since_s / 2.0 if requests else inf)
    found = to_come(pooled([kind]), sofar, [1.0, 5.0, 15.0, 60.0])
    assert [one.chance for one in found] == sorted(one.chance for one in found)
    arrivals = [one.arrivals for one in found]
    assert all(late >= early - 1e-9 for early, late in pairwise(arrivals))
    assert all(0.0 <= one.chance <= 1.0 + 1e-9 for one in found)
