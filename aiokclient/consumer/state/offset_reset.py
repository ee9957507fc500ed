"""The values of `auto_offset_reset`, which determine the offset if there is no valid position.

earliest                 the first record that the log still has
latest                   the end of the log, so that only new records are read
none                     an error, so that the application decides
by_duration:PnDTnHnMn.nS the first record that is at most that old (KIP-1106)
"""

from __future__ import annotations

from typing import Final

from aiokclient.config.consumer import ConsumerConfig
from aiokclient.types.named_tuple import NamedTuple

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1


class Reset(NamedTuple):
    """A value of `auto_offset_reset`; `age_ms` is used only for a duration."""

    name: str
    age_ms: int = 0

    @classmethod
    def of(cls, config: ConsumerConfig) -> Reset:
        """Return the value that a consumer is configured with."""
        age_ms = config.auto_offset_reset_ms
        return cls(config.auto_offset_reset) if age_ms is None else cls("by_duration", age_ms)

    def find_timestamp(self, now_ms: int) -> int:
        """Return the timestamp for ListOffsets. Call it only if the value is not `none`."""
        if self.name == "by_duration":
            return max(now_ms - self.age_ms, 0)
        return {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}[self.name]


EARLIEST: Final = Reset("earliest")
LATEST: Final = Reset("latest")
NONE: Final = Reset("none")
