"""A comparison's figures in words, for the terminal and the report alike."""

from collections.abc import Sequence
from math import isnan

from btb.simulation.summary import Difference, Figures


def format_time(seconds: float) -> str:
    """Return a time with three digits and its unit.

    >>> format_time(436.8), format_time(4.7), format_time(0.0341), format_time(0.00002)
    ('437 s', '4.70 s', '34.1 ms', '0.02 ms')
    """
    if seconds < 1.0:
        return f"{_three_digits(seconds * 1e3)} ms"
    return f"{_three_digits(seconds)} s"


def format_bytes(count: float) -> str:
    """Return a size with its decimal unit.

    >>> format_bytes(7.7e12), format_bytes(21_474_836_480), format_bytes(0)
    ('7.7 TB', '21 GB', '0')
    """
    if count == 0:
        return "0"
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return (
                f"{count / size:.2g} {unit}"
                if count < 10 * size
                else (f"{count / size:,.0f} {unit}")
            )
    return f"{count / 1e3:.2g} kB"


def format_share(share: float) -> str:
    """Return a share as per cent, with a digit more where it is small.

    >>> format_share(0.584), format_share(0.0041), format_share(0.0)
    ('58 %', '0.41 %', '0 %')
    """
    return f"{_percent(share)} %"


def format_change(change: float) -> str:
    """Return a relative change in words.

    >>> format_change(-0.58), format_change(0.03), format_change(0.0)
    ('58 % lower', '3 % higher', 'the same')
    """
    size = _percent(change)
    if size == "0":
        return "the same"
    return f"{size} % {'lower' if change < 0 else 'higher'}"


def format_signed(change: float) -> str:
    """Return a relative change as a signed number of per cent.

    >>> format_signed(-0.584), format_signed(0.0), format_signed(0.031)
    ('−58', '0', '+3.1')
    """
    size = _percent(change)
    return size if size == "0" else f"{'−' if change < 0 else '+'}{size}"


def sentence(row: Figures, difference: Difference | None) -> str:
    """Return what a policy reached in one plain sentence; None stands for the baseline.

    Examples
    --------
    "btb: mean TTFT 58 % lower than cache_aware (95 % interval 51 to 63), moved 1.2 TB, of which
    3 % was never used."
    """
    if difference is None:
        mean = f"mean TTFT {format_time(row.ttft_mean_s)}, which the others are held against"
        return f"{row.policy}: {mean}; {_moved(row)}."
    return f"{row.policy}: {_changed(difference)}, {_moved(row)}."


def headlines(rows: Sequence[Figures], found: Sequence[Difference]) -> list[str]:
    """Return the outcome: the best policy in a sentence, or how setups differ, one a policy."""
    found = [one for one in found if one.policy.partition(":")[0] != "clairvoyant"]
    if not found:
        return [sentence(row, None) for row in rows if row.policy == rows[0].policy]
    if len({row.setup for row in rows}) == 1:
        best = min(found, key=lambda one: one.paired.mean_change)
        return [sentence(row, best) for row in rows if row.policy == best.policy][:1]
    return [
        _over_setups(policy, [one for one in found if one.policy == policy])
        for policy in dict.fromkeys(one.policy for one in found)
    ]


def is_clear(difference: Difference) -> bool:
    """Say whether the interval of the change in mean TTFT leaves out zero."""
    low, high = difference.paired.mean_change_ci
    return high < 0.0 or low > 0.0


def _changed(difference: Difference) -> str:
    paired, than = difference.paired, difference.baseline
    low, high = paired.mean_change_ci
    change = paired.mean_change
    if change == low == high == 0.0:
        return f"mean TTFT the same as {than}"
    size = f"mean TTFT {format_change(change)}"
    size += f" as {than}" if size.endswith("same") else f" than {than}"
    if isnan(low):
        return f"{size} (no interval: all requests came within one minute)"
    if not is_clear(difference):
        between = f"{format_change(low)} to {format_change(high)}"
        return f"{size}, which may be chance (95 % interval {between})"
    near, far = sorted((abs(low), abs(high)))
    return f"{size} (95 % interval {_percent(near)} to {_percent(far)})"


def _moved(row: Figures) -> str:
    if row.moved_bytes == 0:
        return "moved nothing"
    moved = f"moved {format_bytes(row.moved_bytes)}"
    if row.wasted_bytes == 0:
        return f"{moved}, all of it used"
    return f"{moved}, of which {format_share(row.wasted_bytes / row.moved_bytes)} was never used"


def _over_setups(policy: str, found: Sequence[Difference]) -> str:
    parts = []
    for word, sign in (("lower", -1), ("higher", 1)):
        sizes = sorted(
            abs(one.paired.mean_change)
            for one in found
            if is_clear(one) and one.paired.mean_change * sign > 0
        )
        if sizes:
            span = " to ".join(dict.fromkeys((_percent(sizes[0]), _percent(sizes[-1]))))
            parts.append(f"{span} % {word} on {len(sizes)} of {len(found)} setups")
    unclear = sum(not is_clear(one) for one in found)
    if unclear:
        parts.append(f"no clear difference on {unclear} of {len(found)}")
    return f"{policy}: mean TTFT against {found[0].baseline} {', '.join(parts)}."


def _percent(share: float) -> str:
    percent = abs(share) * 100
    if percent < 0.005:
        return "0"
    return f"{percent:.0f}" if percent >= 9.95 else f"{percent:.2g}"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.9995 else f"{value:.2g}"
