"""One reader a log format, the workload generator, the burst audit."""

from btb.traces.formats import FORMATS
from btb.traces.formats.btb import arrival_from_row, arrival_to_row
from btb.traces.options import ReaderOptions
from btb.traces.report import ReadReport
from btb.traces.trace import Trace
from btb.traces.windows import open_trace, open_windows

__all__ = [
    "FORMATS",
    "ReadReport",
    "ReaderOptions",
    "Trace",
    "arrival_from_row",
    "arrival_to_row",
    "open_trace",
    "open_windows",
]
