import pytest

from forecasting.arrival import Arrival
from forecasting.recent import RecentMap
from forecasting.tracker import MAX_ACTIVE, PrefixTracker


def request(at_s: float, *chain: int, tenant: str = "") -> Arrival:
    return Arrival(at_s, chain, block_tokens=512, input_tokens=512 * len(chain), tenant=tenant)


def test_a_sample_tells_of_the_boundary_prefix_with_this_arrival_counted() -> None:
    tracker = PrefixTracker(boundary_tokens=1024)
    tracker.observe(request(0.0, 1, 2, 3))
    sample = tracker.observe(request(4.0, 1, 2, 9))
    assert sample is not None
    assert (sample.node.key, sample.at_s, sample.count_before) == (2, 4.0, 2)
    assert (sample.x["arrivals"], sample.x["gap_last_s"]) == (2.0, 4.0)
    assert sample.x == tracker.features(sample.node, 4.0)


@pytest.mark.parametrize(
    ("block_tokens", "blocks"),
    [(16, 128), (256, 8), (512, 4), (600, 3), (2048, 1), (4096, 1)],
)
def test_the_boundary_is_in_whole_blocks_and_at_least_one(block_tokens: int, blocks: int) -> None:
    assert PrefixTracker().boundary_blocks(block_tokens) == blocks


def test_prompts_that_are_unknown_short_or_broken_give_no_sample_and_are_counted() -> None:
    tracker = PrefixTracker(boundary_tokens=1024)
    for arrival in [request(0.0), request(0.0, 1), request(0.0, 7, 7), request(0.0, 1, 2)]:
        sample = tracker.observe(arrival)
    assert sample is not None
    assert (tracker.arrivals, tracker.short, tracker.tree.broken) == (4, 3, 1)


def test_an_arrival_from_the_past_counts_as_arriving_now() -> None:
    tracker = PrefixTracker(boundary_tokens=512)
    tracker.observe(request(10.0, 1))
    sample = tracker.observe(request(7.0, 1))
    assert sample is not None
    assert (sample.at_s, tracker.now_s, tracker.late) == (10.0, 10.0, 1)


@pytest.mark.parametrize("at_s", [float("inf"), float("nan")])
def test_a_time_that_is_not_a_number_is_refused_before_anything_is_counted(at_s: float) -> None:
    tracker = PrefixTracker(boundary_tokens=512)
    with pytest.raises(ValueError, match="a time must be finite"):
        tracker.observe(request(at_s, 1))
    assert (tracker.arrivals, tracker.now_s, len(tracker.tree)) == (0, 0.0, 0)


def test_new_prefixes_tell_how_their_like_behaved_once_a_minute_has_passed() -> None:
    tracker = PrefixTracker(boundary_tokens=512)
    for arrival in [request(0.0, 1), request(60.0, 1), request(60.0, 2)]:
        before = tracker.observe(arrival)
    assert before is not None
    assert before.x["sibling_repeat_share"] == 0.0
    after_one = tracker.observe(request(60.5, 3))
    assert after_one is not None
    assert after_one.x["sibling_repeat_share"] == 1.0
    after_three = tracker.observe(request(200.0, 2))  # too late for 2 itself
    assert after_three is not None
    assert after_three.x["sibling_repeat_share"] == pytest.approx(1 / 3)


def test_tenants_keep_their_own_counts() -> None:
    tracker = PrefixTracker(boundary_tokens=512)
    tracker.observe(request(0.0, 1, tenant="a"))
    sample = tracker.observe(request(0.0, 2, tenant="b"))
    assert sample is not None
    assert (sample.x["tenant_count_hl_60s"], sample.x["global_count_hl_60s"]) == (1.0, 2.0)


def test_the_hottest_are_those_asked_for_most_of_late() -> None:
    tracker = PrefixTracker(boundary_tokens=512)
    for chain, times_s in {1: [0.0] * 9, 2: [300.0] * 3, 3: [300.0] * 2}.items():
        for at_s in times_s:
            tracker.observe(request(at_s, chain))
    assert [node.key for node in tracker.hottest(300.0, top=2)] == [2, 3]
    assert [node.key for node in tracker.hottest(300.0, top=9)] == [2, 3, 1]


def test_the_hottest_leave_out_what_was_pruned() -> None:
    tracker = PrefixTracker(boundary_tokens=512, max_blocks=2)
    for key in (1, 1, 2, 3):
        tracker.observe(request(0.0, key))
    assert sorted(node.key for node in tracker.hottest(0.0, top=9)) == [2, 3]


def test_the_hottest_are_sought_among_a_bounded_number() -> None:
    tracker = PrefixTracker(boundary_tokens=512)
    for key in range(MAX_ACTIVE + 10):
        tracker.observe(request(0.0, key))
    assert len(tracker.hottest(0.0, top=10 * MAX_ACTIVE)) == MAX_ACTIVE


def test_a_boundary_below_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="boundary_tokens must be at least 1, got 0"):
        PrefixTracker(boundary_tokens=0)


def test_peeking_does_not_make_an_entry_more_recent() -> None:
    recent = RecentMap[str, int](limit=2)
    recent.use("a", int)
    recent.use("b", int)
    assert recent.peek("a") == 0
    recent.use("c", int)
    assert recent.peek("a") is None
    assert (len(recent), recent.forgotten) == (2, 1)


def test_a_map_that_can_hold_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        RecentMap[str, int](limit=0)
