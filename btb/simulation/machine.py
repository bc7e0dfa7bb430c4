"""The machine that a figure was measured on, in a sentence."""

import os
import platform
from pathlib import Path


def describe_machine() -> str:
    """Return processor, cores, memory, system and Python, as far as the system tells them."""
    cores = os.cpu_count() or 1
    parts = [f"{cores} core{'s' if cores > 1 else ''} of {_processor()}"]
    if "SC_PHYS_PAGES" in os.sysconf_names:
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        parts.append(f"{memory_bytes / 2**30:.0f} GiB")
    parts += [f"{platform.system()} {platform.release()}", f"Python {platform.python_version()}"]
    return ", ".join(parts)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
