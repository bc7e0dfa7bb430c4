"""The links between replicas, shared fairly by all that flows over them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf


@dataclass(slots=True, eq=False)
class Flow:
    """Bytes on their way over some links, all at once. `tag` is the caller's."""

    links: tuple[int, ...]
    left_bytes: float
    tag: int
    rate_bytes_s: float = 0.0


class Fabric:
    """Max-min fair sharing of links among flows, without packets.

    Whenever a flow starts or ends, rates are set anew by progressive filling: the tightest link
    gives each of its flows an equal part, and so on with what is left (Bertsekas & Gallager, Data
    Networks, 1992, section 6.5.2).

    Parameters
    ----------
    capacities_bytes_s
        What each link carries, by number.

    Examples
    --------
    Two flows share link 0; the second also crosses link 1, which is narrower:

    >>> fabric = Fabric([10.0, 2.0])
    >>> fabric.start(Flow((0,), 80.0, tag=1), now_s=0.0)
    >>> fabric.start(Flow((0, 1), 20.0, tag=2), now_s=0.0)
    >>> fabric.next_end_s()  # at 8 and 2 bytes/s both take 10 s
    10.0
    >>> sorted(flow.tag for flow in fabric.finish(now_s=10.0))
    [1, 2]
    """

    def __init__(self, capacities_bytes_s: Sequence[float]) -> None:
        self._capacities = list(capacities_bytes_s)
        self._users = [0] * len(self._capacities)
        self._flows: list[Flow] = []
        self._now_s = 0.0

    def start(self, flow: Flow, now_s: float) -> None:
        """Begin to carry `flow`; the others get slower."""
        self._advance(now_s)
        self._flows.append(flow)
        for link in flow.links:
            self._users[link] += 1
        self._share()

    def next_end_s(self) -> float:
        """Return when the next flow ends if nothing else starts; infinite if nothing flows."""
        if not self._flows:
            return inf
        return self._now_s + min(flow.left_bytes / flow.rate_bytes_s for flow in self._flows)

    def ends_s(self, flow: Flow) -> float:
        """Return when `flow` ends if nothing else starts; the present if it has ended."""
        return self._now_s + flow.left_bytes / flow.rate_bytes_s

    def finish(self, now_s: float) -> list[Flow]:
        """Return the flows that have ended by `now_s`, and speed up the others."""
        self._advance(now_s)
        done = [flow for flow in self._flows if flow.left_bytes <= flow.rate_bytes_s * 1e-9]
        if done:
            self._flows = [flow for flow in self._flows if flow not in done]
            for flow in done:
                for link in flow.links:
                    self._users[link] -= 1
            self._share()
        return done

    def offered_bytes_s(self, links: Sequence[int]) -> float:
        """Return the rate that one more flow over `links` would get at least."""
        return min(self._capacities[link] / (self._users[link] + 1) for link in links)

    def _advance(self, now_s: float) -> None:
        elapsed_s = now_s - self._now_s
        for flow in self._flows:
            flow.left_bytes -= flow.rate_bytes_s * elapsed_s
        self._now_s = now_s

    def _share(self) -> None:
        left = dict(enumerate(self._capacities))
        open_flows = list(self._flows)
        while open_flows:
            users: dict[int, int] = {}
            for flow in open_flows:
                for link in flow.links:
                    users[link] = users.get(link, 0) + 1
            tightest = min(users, key=lambda link: left[link] / users[link])
            rate = left[tightest] / users[tightest]
            for flow in [flow for flow in open_flows if tightest in flow.links]:
                flow.rate_bytes_s = rate
                for link in flow.links:
                    left[link] -= rate
                open_flows.remove(flow)
