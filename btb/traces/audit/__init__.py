"""The burst audit: does a trace have bursts of one prefix, and would btb pay there."""

from btb.traces.audit.onsets import Thresholds
from btb.traces.audit.result import Audit
from btb.traces.audit.run import DEPTHS_TOKENS, WINDOWS_S, Auditor, audit

__all__ = ["DEPTHS_TOKENS", "WINDOWS_S", "Audit", "Auditor", "Thresholds", "audit"]
