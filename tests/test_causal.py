"""Worked by hand on a machine with round numbers: see `SETUP`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from btb.controller import Controller
from btb.errors import ConfigError
from btb.simulation.causal import simulate_causal
from btb.simulation.parameters import CausalParameters
from btb.simulation.result import Result
from btb.simulation.setups import Gpu, Model, Setup
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from forecasting.forecaster import Forecaster
from policies import make_policy
from policies.base import ClusterView, Compute, Copy, Decision, Due, Foresight, Keep
from policies.fixed import FixedRule

SETUP = Setup(
    "round_numbers",
    Model("m", 1e9, 1e9, 1.0, 1, 1, 1, attention_dim=0, kv_bytes=500.0, article_kv_bytes=500.0),
    Gpu("g", 4e12, 1.25e11, 1e9 + 1e6, host_bytes_s=2e6, rdma_bytes_s=1e6, disk_bytes_s=1e5),
    gpus_per_replica=1,
    replicas=3,
)
"""1 ms of prefill a token, 10 ms a decode step, 1,000 bytes of KV a token, so 10,000 a block of
10 tokens; HBM has room for 100 blocks; NICs move 100 blocks a second, the host link 200."""

PARAMETERS = CausalParameters(chunk_tokens=1000, copy_latency_s=0.0)
KV_READ = 1000.0 / (1.25e11 * 0.8)
"""Seconds to read one token of KV in a decode step: 10 ns, seen in the last digits only."""

SHARED = tuple(range(1, 11))


def request(name: str, at_s: float, suffix: int = 0, output_tokens: int = 1) -> Arrival:
    """Make a request with the 10 shared blocks, and one of its own if `suffix` is given."""
    chain = (*SHARED, 1000 + suffix) if suffix else SHARED
    return Arrival(at_s, chain, 10, 10 * len(chain), output_tokens, request_id=name)


class Script(FixedRule):
    """Sends each request where it is told to, with the copies it is told to make."""

    def __init__(self, routes: Mapping[str, str], copies: Mapping[str, Sequence[str]]) -> None:
        self._routes = routes
        self._copies = copies

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        name = arrival.request_id
        copies = tuple(
            Copy(
                Prefix(SHARED[-1], 10, 100), SHARED, way[:2], way[-2:], 100_000, 0.0, 0.0, 0.0, "x"
            )
            for way in self._copies.get(name, ())
        )
        return Decision((self._routes[name],), copies)


def run(
    arrivals: Sequence[Arrival],
    routes: str,
    copies: Mapping[str, Sequence[str]] | None = None,
    setup: Setup = SETUP,
    parameters: CausalParameters = PARAMETERS,
) -> Result:
    """Run `arrivals`, the i-th of them on the replica with the i-th digit of `routes`."""
    places = {
        arrival.request_id: f"r{digit}" for arrival, digit in zip(arrivals, routes, strict=True)
    }
    controller = Controller(Script(places, copies or {}), Forecaster({}))
    return simulate_causal(setup, controller, arrivals, parameters)


def test_a_lone_request_takes_its_prefill_and_then_its_decode_steps() -> None:
    result = run([request("a", 1.0, output_tokens=5)], "0")
    assert result.ttft_s == pytest.approx([0.1])
    assert result.finished_s == pytest.approx([1.0 + 0.1 + 4 * 0.01], rel=1e-5)


def test_a_prefix_that_was_computed_here_is_not_computed_again() -> None:
    result = run([request("a", 0.0), request("b", 1.0, suffix=1)], "00")
    assert result.ttft_s == pytest.approx([0.1, 0.01])
    assert list(result.hit_tokens["hbm"]) == [0, 100]


def test_a_prefix_on_another_replica_is_computed_again() -> None:
    result = run([request("a", 0.0), request("b", 1.0, suffix=1)], "01")
    assert result.ttft_s == pytest.approx([0.1, 0.11])
    assert result.hit_rate == 0.0


def test_a_request_behind_the_one_that_computes_its_prefix_waits_and_then_hits() -> None:
    # b comes at 40 ms, waits 60 ms for a, then computes its own 10 tokens.
    result = run([request("a", 0.0), request("b", 0.04, suffix=1)], "00")
    assert result.ttft_s == pytest.approx([0.1, 0.06 + 0.01])


def test_a_copy_takes_its_bytes_over_the_link_and_its_latency() -> None:
    late = replace(PARAMETERS, copy_latency_s=0.002)
    result = run([request("a", 0.0), request("b", 1.0)], "00", {"b": ["r0r1"]}, parameters=late)
    assert [t.started_s for t in result.transfers] == [1.0]
    assert [t.ended_s for t in result.transfers] == pytest.approx([1.102])
    assert result.moved_bytes == 100_000


def test_a_request_waits_for_a_copy_that_beats_computing() -> None:
    # The 10 blocks take 0.1 s to copy as to compute; with a wider link, half of it.
    wide = replace(SETUP, gpu=replace(SETUP.gpu, rdma_bytes_s=2e6))
    result = run([request("a", 0.0), request("b", 1.0, suffix=1)], "01", {"b": ["r0r1"]}, wide)
    assert result.ttft_s == pytest.approx([0.1, 0.05 + 0.01])
    assert list(result.hit_tokens["copied"]) == [0, 100]
    assert result.wasted_bytes == 0.0


def test_a_request_does_not_wait_for_a_copy_that_is_slower_than_computing() -> None:
    slow = replace(SETUP, gpu=replace(SETUP.gpu, rdma_bytes_s=1e5))
    result = run([request("a", 0.0), request("b", 1.0, suffix=1)], "01", {"b": ["r0r1"]}, slow)
    assert result.ttft_s == pytest.approx([0.1, 0.11])
    assert result.wasted_bytes == 100_000


def test_what_does_not_exist_yet_is_sent_on_as_it_is_computed() -> None:
    # At 2 ms a token and 20 tokens a chunk, r0 has 2 of a's 10 blocks more every 0.04 s. A piece of
    # 20 kB takes 0.02 s, so each is at r1 before the next one is computed, the last at 0.22 s.
    slow = replace(SETUP, gpu=replace(SETUP.gpu, flops=2e12))
    small = replace(PARAMETERS, chunk_tokens=20)
    late = request("b", 0.01, suffix=1)
    elsewhere = Arrival(0.005, (77,), 10, 10, 1, request_id="c")
    result = run([request("a", 0.0), elsewhere, late], "021", {"c": ["r0r1"]}, slow, small)
    (sent,) = result.transfers
    assert (sent.started_s, sent.ended_s) == pytest.approx((0.04, 0.22))
    assert sent.size_bytes == 100_000
    # b waits for it: its own 10 tokens are computed by 0.24 s. Computing all 110 itself, it would
    # have been done at 0.23 s, but others may need r1.
    assert result.ttft_s[2] == pytest.approx(0.24 - 0.01)
    assert result.hit_tokens["copied"][2] == 100


def test_what_is_being_received_is_sent_on_too() -> None:
    # r0 sends to r1 and r1 to r2, piece by piece: the last one is one piece later at each.
    slow = replace(SETUP, gpu=replace(SETUP.gpu, flops=2e12))
    small = replace(PARAMETERS, chunk_tokens=20)
    other = Arrival(0.005, (77,), 10, 10, 1, request_id="c")
    arrivals = [request("a", 0.0), other, request("b", 1.0, suffix=1)]
    result = run(arrivals, "022", {"c": ["r0r1", "r1r2"]}, slow, small)
    assert [t.ended_s for t in result.transfers] == pytest.approx([0.22, 0.24])
    assert result.ttft_s[2] == pytest.approx(0.02)


def test_nothing_is_sent_to_a_replica_that_computes_it_as_fast_itself() -> None:
    slow = replace(SETUP, gpu=replace(SETUP.gpu, flops=2e12, rdma_bytes_s=1e5))
    arrivals = [request("a", 0.0), request("b", 0.02)]
    result = run(arrivals, "01", {"b": ["r0r1"]}, slow)
    assert result.ttft_s == pytest.approx([0.2, 0.2])
    assert result.moved_bytes == 0.0


def test_a_source_that_sends_to_two_takes_twice_as_long_for_each() -> None:
    arrivals = [request("a", 0.0), request("b", 1.0)]
    result = run(arrivals, "00", {"b": ["r0r1", "r0r2"]})
    assert [t.ended_s for t in result.transfers] == pytest.approx([1.2, 1.2])


def test_the_same_copy_is_not_made_twice() -> None:
    arrivals = [request("a", 0.0), request("b", 1.0), request("c", 1.05), request("d", 2.0)]
    copies = {name: ["r0r1"] for name in "bcd"}
    assert run(arrivals, "0000", copies).moved_bytes == 100_000


def test_a_copy_of_what_nobody_holds_does_nothing() -> None:
    result = run([request("a", 0.0)], "0", {"a": ["r1r2"]})
    assert result.transfers == ()


def test_a_copy_that_nobody_uses_is_waste() -> None:
    result = run([request("a", 0.0), request("b", 1.0)], "00", {"b": ["r0r1"]})
    assert result.wasted_bytes == result.moved_bytes == 100_000


def test_a_request_that_waits_for_its_kv_lets_the_next_one_pass() -> None:
    wide = replace(SETUP, gpu=replace(SETUP.gpu, rdma_bytes_s=2e6))
    other = Arrival(1.0, (77,), 10, 10, 1, request_id="c")
    arrivals = [request("a", 0.0), request("b", 1.0, suffix=1), other]
    result = run(arrivals, "011", {"b": ["r0r1"]}, wide)
    assert result.ttft_s == pytest.approx([0.1, 0.06, 0.01])


def test_evicted_kv_comes_back_from_ram_when_that_is_quicker() -> None:
    # 95 blocks of another request push the prefix out; 10 blocks load in 0.05 s, not 0.1 s.
    big = Arrival(1.0, tuple(range(100, 195)), 10, 950, 1, request_id="big")
    arrivals = [request("a", 0.0), big, request("b", 3.0, suffix=1)]
    result = run(arrivals, "000")
    # big needs 96 blocks of 100, so 6 of the 10 are evicted; 4 stay; the 6 load in 0.03 s.
    assert result.ttft_s == pytest.approx([0.1, 0.95, 0.03 + 0.01])
    assert result.hit_tokens["ram"][2] + result.hit_tokens["hbm"][2] == 100
    assert not any(transfer.asked for transfer in result.transfers)


def test_without_ram_evicted_kv_is_computed_again() -> None:
    big = Arrival(1.0, tuple(range(100, 195)), 10, 950, 1, request_id="big")
    arrivals = [request("a", 0.0), big, request("b", 3.0, suffix=1)]
    result = run(arrivals, "000", parameters=replace(PARAMETERS, ram_bytes=0.0))
    assert result.ttft_s == pytest.approx([0.1, 0.95, 0.06 + 0.01])


def test_running_requests_decode_one_token_beside_each_chunk() -> None:
    # a decodes from 0.1 s; b's 300 tokens come in 3 chunks of 100, and a gets 3 tokens meanwhile.
    # b arrives 5 ms into a's first decode step, which ends at 0.11 s.
    other = Arrival(0.105, (77,), 10, 300, 1, request_id="b")
    arrivals = [request("a", 0.0, output_tokens=10), other]
    result = run(arrivals, "00", parameters=replace(PARAMETERS, chunk_tokens=100))
    assert result.ttft_s == pytest.approx([0.1, 0.11 + 0.3 - 0.105], rel=1e-4)
    # 9 tokens after the first: 1 alone, 3 beside b's chunks, 5 alone.
    assert result.finished_s[0] == pytest.approx(0.11 + 0.3 + 5 * 0.01, rel=1e-4)


def test_attention_makes_late_tokens_dearer() -> None:
    # 4 * layers * width * n * (context + n / 2) flops at 2e12 flop/s reached.
    model = replace(SETUP.model, attention_dim=1_000_000)
    result = run([request("a", 0.0)], "0", setup=replace(SETUP, model=model))
    assert result.ttft_s == pytest.approx([0.1 + 4 * 1e6 * 100 * 50 / 2e12])


def test_a_request_that_can_never_fit_is_refused_with_its_sizes() -> None:
    giant = Arrival(0.0, tuple(range(101)), 10, 1010, 1, request_id="a")
    with pytest.raises(ConfigError, match=r"needs 1011 tokens of KV.*room for 1000"):
        run([giant], "0")


def test_a_request_without_a_known_prompt_is_served_too() -> None:
    result = run([Arrival(0.0, (), 10, 50, 3, request_id="a")], "0")
    assert result.ttft_s == pytest.approx([0.05])


def test_requests_wait_for_room_in_hbm_until_others_have_finished() -> None:
    # Each needs 60 of 100 blocks while it runs; b can't begin before a's 100 tokens are out.
    first = Arrival(0.0, (1,), 10, 500, 100, request_id="a")
    second = Arrival(0.0, (2,), 10, 500, 100, request_id="b")
    result = run([first, second], "00")
    assert result.ttft_s[1] == pytest.approx(0.5 + 99 * 0.01 + 0.5, rel=1e-3)


def test_copies_that_wait_for_each_other_hold_nobody_up() -> None:
    # r0 and r1 have no room until 1.2 s: 900 tokens to compute, then 30 to write. Behind that,
    # each has one request for the prefix; then each is told to copy it from the other. If both
    # waited for the other's copy, neither would ever have anything to send; so each computes.
    full = [
        Arrival(0.0, tuple(range(first, first + 90)), 10, 900, 31, request_id=str(first))
        for first in (100, 200)
    ]
    other = Arrival(0.03, (77,), 10, 10, 1, request_id="c")
    arrivals = [*full, request("a", 0.01), request("b", 0.02), other]
    fast = replace(SETUP, gpu=replace(SETUP.gpu, rdma_bytes_s=1e8, hbm_bytes=1e9 + 950_000))
    result = run(arrivals, "01012", {"c": ["r0r1", "r1r0"]}, fast)
    assert result.ttft_s[2:4] == pytest.approx([1.3 - 0.01, 1.3 - 0.02], rel=1e-3)


def test_nobody_waits_on_for_a_copy_whose_source_never_gets_the_kv() -> None:
    # r0 has no room for r2's copy, so it has nothing to send to r1 either. b waits for that at
    # r1 until r0 next looks, when its step ends at 0.9 s, and is computed then.
    full = Arrival(0.0, tuple(range(100, 190)), 10, 900, 31, request_id="full")
    other = Arrival(0.03, (77,), 10, 10, 1, request_id="c")
    arrivals = [full, request("a", 0.01), other, request("b", 0.12)]
    fast = replace(SETUP, gpu=replace(SETUP.gpu, rdma_bytes_s=1e8, hbm_bytes=1e9 + 950_000))
    result = run(arrivals, "0211", {"c": ["r2r0", "r0r1"]}, fast)
    assert result.ttft_s[3] <= 0.9 - 0.12 + 0.1 + 1e-9
    assert result.moved_bytes == 0.0


class Ahead(Script):
    """Sends all but `elsewhere` to `r0`, and does at the first look what it was given."""

    lead_s = 10.0

    def __init__(self, done: Foresight) -> None:
        super().__init__({}, {})
        self._done = done

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        return Decision(("r1" if arrival.request_id == "elsewhere" else "r0",))

    def anticipate(self, due: Sequence[Due], cluster: ClusterView, now_s: float) -> Foresight:
        done, self._done = self._done, Foresight()
        return done


def ahead(arrivals: Sequence[Arrival], done: Foresight) -> Result:
    controller = Controller(Ahead(done), Forecaster({}))
    return simulate_causal(SETUP, controller, arrivals, PARAMETERS)


BIG = Arrival(1.0, tuple(range(100, 195)), 10, 950, 1, request_id="big")
"""Pushes 6 of the 10 shared blocks out of the 100 that `r0` has room for."""


def test_kv_is_brought_up_from_ram_before_it_is_asked_for() -> None:
    prefix = Prefix(SHARED[-1], 10, 100)
    load = Copy(prefix, SHARED, "r0", "r0", 100_000, 0.0, 0.0, 0.0, "due")
    arrivals = [request("a", 0.0), BIG, request("b", 9.0, suffix=1)]
    result = ahead(arrivals, Foresight(copies=(load,)))
    # The look is at 5 s; 6 blocks take 0.03 s; b finds all of it.
    (moved,) = result.transfers
    assert (moved.started_s, moved.ended_s) == pytest.approx((5.0, 5.03))
    assert (moved.asked, moved.used, moved.source_tier) == (True, True, "ram")
    assert result.moved_bytes == 60_000
    assert result.ttft_s[2] == pytest.approx(0.01)
    assert result.hit_tokens["ram"][2] == 100


def test_what_is_kept_outlasts_what_was_used_later() -> None:
    # 10 blocks shared, then 51 of another request; 46 more push out 7: of the shared ones, for they
    # were used longest ago, unless they are kept. b has what is gone brought back from RAM.
    other = Arrival(1.0, tuple(range(200, 250)), 10, 500, 1, request_id="c")
    late = Arrival(7.0, tuple(range(300, 345)), 10, 450, 1, request_id="d")
    arrivals = [request("a", 0.0), other, late, request("b", 8.0, suffix=1)]
    for until_s, tier in ((6.9, "ram"), (7.1, "hbm")):
        result = ahead(arrivals, Foresight(keeps=(Keep(SHARED, "r0", until_s),)))
        assert result.hit_tokens[tier][3] == 100


def test_what_is_kept_makes_room_for_a_request_that_needs_it() -> None:
    arrivals = [request("a", 0.0), replace(BIG, at_s=6.0)]
    result = ahead(arrivals, Foresight(keeps=(Keep(SHARED, "r0", 100.0),)))
    assert result.ttft_s == pytest.approx([0.1, 0.95])


def test_a_prefix_computed_ahead_is_accounted_apart_and_gives_way() -> None:
    # Computed from 5 to 5.1 s in chunks of 20 tokens; x comes at 5.03 s and waits for one chunk.
    other = Arrival(5.03, (77,), 10, 10, 1, request_id="x")
    first = Arrival(0.0, (78,), 10, 10, 1, request_id="first")
    late = request("b", 9.0, suffix=1)
    done = Foresight(computes=(Compute(SHARED, "r0", "due"),))
    controller = Controller(Ahead(done), Forecaster({}))
    small = replace(PARAMETERS, chunk_tokens=20)
    result = simulate_causal(SETUP, controller, [first, other, late], small)
    assert result.ttft_s == pytest.approx([0.01, 0.01 + 0.01, 0.01])
    assert result.speculated_s == pytest.approx(0.1)
    assert (result.speculated_tokens, result.unused_speculated_tokens) == (100, 0)
    unused = ahead([first, replace(late, request_id="elsewhere")], done)
    assert (unused.speculated_tokens, unused.unused_speculated_tokens) == (100, 100)
    assert unused.ttft_s[1] == pytest.approx(0.11)


requests = st.lists(
    st.tuples(
        st.floats(0.0, 1.0),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(1, 30),
        st.integers(0, 2),
        st.lists(
            st.sampled_from(["r0r1", "r1r2", "r2r0", "r1r0", "r0r2", "r2r1", "r0r0"]), max_size=3
        ),
    ),
    max_size=25,
)


@given(
    requests,
    st.sampled_from([5e4, 1e6, 1e8]),
    st.sampled_from([15, 40, 100]),
    st.sampled_from([20, 1000]),
)
def test_no_request_is_ever_lost_whatever_is_copied_when(
    drawn: list[tuple[float, int, int, int, int, list[str]]],
    rdma_bytes_s: float,
    blocks: int,
    chunk_tokens: int,
) -> None:
    gpu = replace(SETUP.gpu, rdma_bytes_s=rdma_bytes_s, hbm_bytes=1e9 + blocks * 10_000)
    arrivals: list[Arrival] = []
    routes, copies = "", {}
    for number, (gap_s, kind, suffix, output_tokens, route, ways) in enumerate(drawn):
        at_s = arrivals[-1].at_s + gap_s * 0.1 if arrivals else 0.0
        name = str(number)
        if kind:
            arrivals.append(request(name, at_s, suffix, output_tokens))
        else:
            arrivals.append(Arrival(at_s, (500 + suffix,), 10, 10, output_tokens, request_id=name))
        routes += str(route)
        copies[name] = ways
    parameters = replace(PARAMETERS, chunk_tokens=chunk_tokens)
    result = run(arrivals, routes, copies, replace(SETUP, gpu=gpu), parameters)
    assert np.isfinite(result.ttft_s).all()
    assert (result.ttft_s > 0).all()
    assert (result.finished_s >= result.arrived_s + result.ttft_s - 1e-9).all()
    hits = sum(result.hit_tokens.values())
    assert (hits < result.input_tokens).all()
    for transfer in result.transfers:
        assert transfer.blocks <= (10 if transfer.asked else 11)
        assert transfer.started_s <= transfer.ended_s < np.inf


@pytest.mark.parametrize("name", ["random", "cache_aware", "early_rdma", "kv_cost", "btb"])
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    rng = Random(5)
    arrivals = [
        request(str(n), n * 0.03, suffix=rng.randrange(9), output_tokens=rng.randrange(1, 9))
        for n in range(60)
    ]
    results = [
        simulate_causal(
            SETUP, Controller(make_policy(name, seed=3), Forecaster({})), arrivals, PARAMETERS
        )
        for _ in range(2)
    ]
    assert (results[0].ttft_s == results[1].ttft_s).all()
    assert (results[0].replica == results[1].replica).all()


class ByName(Script):
    """Sends all to `r0`, each with the priority that is written after the dash in its name."""

    def __init__(self) -> None:
        super().__init__({}, {})

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        return Decision(("r0",), priority=float(arrival.request_id.partition("-")[2]))


def by_name(
    arrivals: Sequence[Arrival],
    parameters: CausalParameters = PARAMETERS,
    setup: Setup = SETUP,
) -> Result:
    return simulate_causal(setup, Controller(ByName(), Forecaster({})), arrivals, parameters)


def alone(name: str, at_s: float, tokens: int) -> Arrival:
    chain = tuple(hash((name, block)) for block in range(tokens // 10))
    return Arrival(at_s, chain, 10, tokens, 1, request_id=name)


def test_of_those_that_wait_the_lowest_priority_goes_first() -> None:
    arrivals = [alone("a-1", 0.0, 100), alone("b-9", 0.01, 100), alone("c-2", 0.02, 100)]
    result = by_name(arrivals)
    assert result.ttft_s == pytest.approx([0.1, 0.3 - 0.01, 0.2 - 0.02])


def test_one_with_a_better_priority_takes_over_at_the_end_of_a_chunk() -> None:
    # a's 300 tokens come in chunks of 100; b takes over at 0.1 s, and a goes on from there.
    arrivals = [alone("a-9", 0.0, 300), alone("b-1", 0.05, 100)]
    result = by_name(arrivals, replace(PARAMETERS, chunk_tokens=100))
    assert result.ttft_s == pytest.approx([0.4, 0.2 - 0.05])
    assert result.hit_rate == 0.0


def test_equal_priorities_are_served_in_order_of_arrival() -> None:
    arrivals = [alone("a-5", 0.0, 300), alone("b-5", 0.05, 100)]
    result = by_name(arrivals, replace(PARAMETERS, chunk_tokens=100))
    assert result.ttft_s == pytest.approx([0.3, 0.4 - 0.05])


def test_an_engine_without_priorities_serves_in_order_of_arrival() -> None:
    arrivals = [alone("a-9", 0.0, 100), alone("b-9", 0.01, 100), alone("c-1", 0.02, 100)]
    result = by_name(arrivals, replace(PARAMETERS, by_priority=False))
    assert result.ttft_s == pytest.approx([0.1, 0.2 - 0.01, 0.3 - 0.02])


@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 4), st.integers(0, 9)), max_size=20))
def test_whatever_the_priorities_the_work_is_done_once_and_nobody_is_lost(
    drawn: list[tuple[float, int, int]],
) -> None:
    arrivals: list[Arrival] = []
    for number, (gap_s, blocks, rank) in enumerate(drawn):
        at_s = (arrivals[-1].at_s if arrivals else 0.0) + gap_s
        arrivals.append(alone(f"{number}-{rank}", at_s, 100 * blocks))
    roomy = replace(SETUP, gpu=replace(SETUP.gpu, hbm_bytes=1.1e9))  # nothing is evicted
    result = by_name(arrivals, replace(PARAMETERS, chunk_tokens=50), roomy)
    ends = np.sort(result.arrived_s + result.ttft_s)
    busy_s = 0.0
    for arrival in arrivals:
        busy_s = max(busy_s, arrival.at_s) + arrival.input_tokens / 1000
    if len(arrivals):
        # One server that never rests while somebody waits is done at the same time in any order.
        assert ends[-1] == pytest.approx(busy_s)
