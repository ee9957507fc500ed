"""The decision about each push of a stream: accepted, late, or a copy of an earlier one.

The state is the identity and the time of all pushes that were accepted and are not older than the
watermark. A copy of an older push is late, too, so no other identities need to be kept. Each
decision depends only on the state, the watermark, and the pushes of the batch in the order of
partitions and offsets. A batch that is repeated after a crash is therefore decided in the same way.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

ACCEPTED: Final = "accepted"
BROKEN: Final = "broken"
DUPLICATE: Final = "duplicate"
LATE: Final = "late"
ENTRY: Final = Struct(">16sq")


class Admission:
    """The decisions about the pushes of one batch. Times are in microseconds.

    `state` has the accepted pushes of earlier batches. It is the result of `save_state` after the
    previous batch, and empty for the first batch.
    """

    def __init__(self, state: bytes, watermark: int) -> None:
        self._watermark = watermark
        self._seen: dict[bytes, int] = dict(ENTRY.iter_unpack(state))

    def decide_push(
        self, digest: bytes, event_us: int | None, problem: str | None
    ) -> tuple[str, str | None]:
        """Return the status of a push, and the reason if it is not accepted."""
        if problem is not None:
            return BROKEN, problem
        if event_us is None:
            return BROKEN, "Neither the record nor a point has a time."
        if event_us < self._watermark:
            seconds = (self._watermark - event_us) / 1_000_000
            return LATE, f"The push is {seconds:.3f} s older than the watermark."
        if digest in self._seen:
            return DUPLICATE, "The same push was accepted before."
        self._seen[digest] = event_us
        return ACCEPTED, None

    def save_state(self) -> bytes:
        """Return the state, without the pushes that are older than the watermark."""
        kept = ((each, at) for each, at in self._seen.items() if at >= self._watermark)
        return b"".join(ENTRY.pack(*entry) for entry in kept)
