"""Forecast and cluster in, decision out: no I/O, no clock, no randomness of its own."""

from policies.registry import POLICIES, make_policy

__all__ = ["POLICIES", "make_policy"]
