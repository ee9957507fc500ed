"""The time that the host of a virtual machine takes from it.

The CPU time of a thread includes pauses of the whole machine, which can last for a tenth of a
second and hit any code. The kernel counts them as "steal".
"""

import os
import time
from pathlib import Path

__all__ = ["StolenTime"]

STAT = Path("/proc/stat")
STEAL = 8
"""The column of "steal" in the first line of STAT, which has the ticks of all processors."""
FRESH_S = 0.2


def _stolen_s() -> float:
    if not STAT.exists():
        return 0.0
    with STAT.open() as file:
        return int(file.readline().split()[STEAL]) / os.sysconf("SC_CLK_TCK")


class StolenTime:
    """A measurement of stolen time, which begins at `begin` or at most FRESH_S before it."""

    def __init__(self) -> None:
        self._at, self._total = time.monotonic(), _stolen_s()

    def begin(self) -> None:
        """Begin to measure. Read the kernel's counter if the last value is older than FRESH_S."""
        now = time.monotonic()
        if now - self._at > FRESH_S:
            self._at, self._total = now, _stolen_s()

    def seconds(self) -> float:
        """Return the stolen seconds, added up over all processors."""
        return _stolen_s() - self._total
