"""What it takes to have a prefix's KV ready: computing it, or moving it from where it lies."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

from btb.simulation.setups import Setup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARTICLE_TOKENS = (500, 1_000, 2_000, 8_000, 16_000, 32_000)
"""The columns of the article's table."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds until the KV of each number of tokens is there, from one source.

    `times_faster` is prefill's time over this one; None where the two don't grow alike.
    """

    source: str
    seconds: tuple[float, ...]
    times_faster: float | None


def cost_table(setup: Setup, tokens: Sequence[int] = ARTICLE_TOKENS) -> list[Cost]:
    """Return a row a source, the article's five and then prefill with attention counted.

    The article's formulas: prefill is 2 x active parameters x tokens over the replica's compute at
    its MFU, and a load is bytes over the bandwidth of the tier, all GPUs of a replica together
    (the disk pool is one a node). The last row adds the attention term, see `Setup.prefill_s`.

    Examples
    --------
    >>> from btb.simulation.setups import SETUPS
    >>> rdma = cost_table(SETUPS["70b_h100x4"])[2]
    >>> rdma.source, round(rdma.seconds[3] * 1e3, 1), round(rdma.times_faster)
    ('RDMA', 13.1, 44)
    """
    prefill_s = tuple(setup.prefill_s(count, attention=False) for count in tokens)
    attention_s = tuple(setup.prefill_s(count) for count in tokens)
    loads = {
        "disk": setup.disk_bytes_s,
        "RDMA": setup.rdma_bytes_s,
        "RAM": setup.host_bytes_s,
        "HBM": setup.hbm_bytes_s,
    }
    rows = [Cost("prefill", prefill_s, 1.0)]
    for source, bytes_s in loads.items():
        load_s = tuple(count * setup.kv_token_bytes / bytes_s for count in tokens)
        rows.append(Cost(source, load_s, prefill_s[0] / load_s[0]))
    return [*rows, Cost("prefill with attention", attention_s, None)]


def format_ms(seconds: float) -> str:
    """Return milliseconds with the article's digits.

    Whole microseconds first, then the digits shown, half up: 163.84 MB at 220 GB/s take 0.7447 ms,
    and the article says 0.75.

    >>> [format_ms(s) for s in (0.0000122, 0.0007447, 0.0131, 0.1428, 0.571)]
    ['0.012', '0.75', '13.1', '142.8', '571']
    """
    ms = Decimal(f"{seconds * 1e3:.3f}")
    digits = "0.001" if ms < Decimal("0.1") else "0.01" if ms < 10 else "0.1" if ms < 200 else "1"
    return str(ms.quantize(Decimal(digits), ROUND_HALF_UP))


def draw_costs(setup: Setup, tokens: Sequence[int] = ARTICLE_TOKENS) -> "Figure":
    """Return a bar chart of `cost_table`, time on a log scale, one group of bars a source."""
    from matplotlib.figure import Figure

    rows = cost_table(setup, tokens)
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(tokens)
    for column, count in enumerate(tokens):
        left = [row + (column - (len(tokens) - 1) / 2) * width for row in range(len(rows))]
        shade = 0.25 + 0.7 * column / max(1, len(tokens) - 1)
        heights_ms = [row.seconds[column] * 1e3 for row in rows]
        axes.bar(left, heights_ms, width * 0.92, color="#0072b2", alpha=shade, label=f"{count:,}")
    for row, cost in enumerate(rows):
        top_s = cost.seconds[-1]
        axes.annotate(format_ms(top_s), (row + 0.4, top_s * 1e3), ha="right", va="bottom")
    axes.set_yscale("log")
    axes.set_ylabel("time until the KV is there (ms, log scale)")
    axes.set_xticks(range(len(rows)), [row.source.replace(" with", "\nwith") for row in rows])
    axes.set_title(f"Computing a prefix against moving it, {setup.name}")
    axes.legend(title="tokens", ncols=2, loc="upper center", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
