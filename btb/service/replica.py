"""One replica as the service knows it: what it was sent, and what it said of itself."""

from dataclasses import dataclass

from btb.service.residency import Residency
from btb.simulation.setups import Setup


@dataclass(frozen=True, slots=True)
class Report:
    """What a replica said of itself, less what the service knew of it at that moment.

    `others` are requests that did not come from here. `spare_bytes` is its free HBM and what was
    thought to be held then, together: minus what is held now it is what is free now.
    """

    others: int = 0
    spare_bytes: float | None = None


@dataclass(slots=True)
class Placement:
    """A request that was sent to a replica and has not ended.

    `number` names it inside, whatever its client calls it. `ready_s` is when its first token was
    expected, `shift_s` the replica's at that moment.
    """

    number: str
    replica: "Replica"
    chain: tuple[int, ...]
    block_tokens: int
    placed_s: float
    ready_s: float
    shift_s: float
    input_tokens: int
    hit_tokens: int
    own_bytes: int
    answered: bool = False


class Replica:
    """A live replica: load and queue from what was routed, corrected by what came back.

    Attributes
    ----------
    load
        Requests sent to it that have not ended.
    routed
        Requests ever sent to it.
    busy_until_s
        When the prefill of all that it was sent is expected to be over.
    shift_s
        Seconds by which first tokens came later than expected, summed; negative where earlier.
    """

    def __init__(self, name: str, setup: Setup) -> None:
        self.name = name
        self.setup = setup
        self.residency = Residency(setup.kv_capacity_bytes)
        self.report = Report()
        self.load = self.routed = 0
        self.busy_until_s = self.shift_s = 0.0
        self._own_bytes = 0

    def take_report(self, requests: int | None, free_bytes: float | None) -> None:
        """Take in how many requests it says it has, and how much HBM is free."""
        self.report = Report(
            self.report.others if requests is None else max(0, requests - self.load),
            self.report.spare_bytes if free_bytes is None else free_bytes + self._held_bytes(),
        )

    def change_setup(self, setup: Setup) -> None:
        """Make it a replica of `setup` from now on."""
        self.setup = setup
        self.residency.resize(setup.kv_capacity_bytes)

    def block_bytes(self, block_tokens: int) -> int:
        """Return the KV bytes of a block, over all ranks, rounded."""
        return round(self.setup.kv_token_bytes * block_tokens)

    def requests(self) -> int:
        """Return how many requests wait or run on it, those from elsewhere included."""
        return self.load + self.report.others

    def queue_s(self, now_s: float) -> float:
        """Return the seconds of prefill ahead of a request that joined now."""
        return max(0.0, self.busy_until_s - now_s)

    def free_bytes(self) -> float:
        """Return the HBM that no block and no running request holds."""
        spare = self.report.spare_bytes
        if spare is None:
            spare = self.setup.kv_capacity_bytes
        return max(0.0, spare - self._held_bytes())

    def start(self, placement: Placement, *, busy_until_s: float) -> None:
        """Count a request that is sent here, and its prefill up to `busy_until_s`."""
        self.load += 1
        self.routed += 1
        self._own_bytes += placement.own_bytes
        self.busy_until_s = busy_until_s

    def first_token(self, placement: Placement, at_s: float) -> None:
        """Move what is still expected by as much as this first token came late or early."""
        error_s = at_s - (placement.ready_s + self.shift_s - placement.shift_s)
        self.shift_s += error_s
        self.busy_until_s = max(at_s, self.busy_until_s + error_s)

    def end(self, placement: Placement) -> None:
        """Stop counting a request."""
        self.load -= 1
        self._own_bytes -= placement.own_bytes

    def _held_bytes(self) -> float:
        return self.residency.held_bytes + self._own_bytes
