"""Values to send: typical JSON of services, the same in every run and for every client."""

import json
import random
from pathlib import Path

POOL_BYTES = 4_000_000
WORDS = (
    *("order", "customer", "invoice", "shipped", "pending", "warehouse", "berlin", "lisbon"),
    *("card", "transfer", "refund", "express", "standard", "priority", "gift", "north"),
    *("south", "amount", "currency", "status", "created", "updated", "region", "partner"),
)


def text(rng: random.Random, size: int) -> bytes:
    """Return JSON of exactly `size` bytes, which lz4 compresses to about half its size."""
    parts: list[str] = []
    length = 0
    while length < size:
        number = rng.getrandbits(48)
        pair = {"id": f"{number:012x}", rng.choice(WORDS): rng.choice(WORDS), "n": rng.random()}
        parts.append(json.dumps(pair, separators=(",", ":")))
        length += len(parts[-1])
    return "".join(parts).encode()[:size]


def write_pool(folder: Path, size: int) -> Path:
    """Write a file with 4 MB of different values of `size` bytes each."""
    file = folder / f"values-{size}"
    if not file.exists():
        rng = random.Random(size)
        file.write_bytes(b"".join(text(rng, size) for _ in range(max(4, POOL_BYTES // size))))
    return file
