"""What a learner is told of one prefix at one moment: finite numbers by name."""

from forecasting.node import PrefixNode
from forecasting.population import Population
from forecasting.stats import GAPS
from models.base import HALF_LIVES_S, decayed_count
from models.snapshot import Snapshot

LONGEST_S = 86_400.0
"""Every time is capped at a day. A gap or an interval that there has not been yet is one too."""

FEATURE_NAMES: tuple[str, ...] = (
    *(decayed_count(half_life_s) for half_life_s in HALF_LIVES_S),
    "arrivals",
    "gap_last_s",
    "gap_prev_s",
    *(f"gap_{k}_s" for k in range(3, GAPS + 1)),
    "gap_share_15s",
    "gap_share_60s",
    "since_last_s",
    "age_s",
    "depth_tokens",
    "input_tokens",
    "input_growth_tokens",
    f"parent_{decayed_count(60.0)}",
    f"parent_{decayed_count(300.0)}",
    f"tenant_{decayed_count(60.0)}",
    f"tenant_{decayed_count(300.0)}",
    f"global_{decayed_count(60.0)}",
    f"global_{decayed_count(300.0)}",
    "sibling_repeat_share",
    "bursts_seen",
    "burst_size",
    "last_burst_size",
    "since_burst_start_s",
    "burst_interval_s",
)
"""Names of the features, in the order of the snapshot that `features` returns.

`arrivals` counts all so far, `age_s` from the first. The gaps are those between the latest
arrivals, newest first, the gap shares what part of them was no longer than 15 and 60 s, newer ones
counting more. `input_tokens` is the last prompt's length, `input_growth_tokens` how much longer it
is than the one before. The parent is the node above, or all arrivals where there is none.
`sibling_repeat_share` is, of the tenant's recently new prefixes, the share asked for again within a
minute; of everybody's, where the tenant has had none yet. `burst_size` counts the arrivals of the
burst under way or over last, `last_burst_size` those of the one before, 0 where there was none.
"""


_NO_GAPS = (LONGEST_S,) * GAPS


def features(node: PrefixNode, tenant: Population, everyone: Population, at_s: float) -> Snapshot:
    """Return the features of `node` as of `at_s`, at or after the last arrival seen.

    It may be between arrivals: counts have then decayed further, and `since_last_s` has grown.
    Counts are arrivals, halved with the half-life in their name; times are seconds, at most
    `LONGEST_S`, which also stands for a gap that there has not been.
    """
    stats = node.stats
    of_all = everyone.counts(at_s)
    of_tenant = of_all if tenant is everyone else tenant.counts(at_s)
    of_parent = of_all if node.parent is None else node.parent.stats.counts(at_s)[3:5]
    siblings = tenant if tenant.firsts else everyone
    values = (
        *stats.counts(at_s),
        float(stats.arrivals),
        *map(_capped, stats.gaps_s),
        *_NO_GAPS[len(stats.gaps_s) :],
        stats.gap_share_15s,
        stats.gap_share_60s,
        _capped(max(at_s - stats.last_s, 0.0)),
        _capped(max(at_s - stats.first_s, 0.0)),
        float(node.end * node.block_tokens),
        float(stats.input_tokens),
        float(stats.input_growth_tokens),
        *of_parent,
        *of_tenant,
        *of_all,
        siblings.repeat_share,
        float(stats.bursts),
        float(stats.burst_size),
        float(stats.burst_before),
        _capped(max(at_s - stats.burst_start_s, 0.0)),
        _capped(stats.burst_interval_s),
    )
    return Snapshot(zip(FEATURE_NAMES, values, strict=True))


def _capped(seconds: float) -> float:
    """Return at most `LONGEST_S`; -1 says that there is none, which counts as longest."""
    return seconds if 0.0 <= seconds < LONGEST_S else LONGEST_S
