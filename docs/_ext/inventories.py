"""Inventories for intersphinx: the pinned ones of this repository, or those of the sites.

A build without a network must not fail, and must not depend on what the sites have today. So the
names of other projects that this site links to are kept in `docs/inventories`, one line for each:
name, kind, and address relative to the project's site. With `external`, the inventories of the
sites are read instead.
"""

from __future__ import annotations

import zlib
from pathlib import Path

__all__ = ["mapping"]

SITES = {
    "python": "https://docs.python.org/3/",
    "pyarrow": "https://arrow.apache.org/docs/",
}

HEAD = """# Sphinx inventory version 2
# Project: {name}
# Version: pinned
# The remainder of this file is compressed using zlib.
"""


def mapping(source: Path, target: Path, external: bool) -> dict[str, tuple[str, str | None]]:
    """Return the value of `intersphinx_mapping`; write the pinned inventories to `target`."""
    if external:
        return {name: (site, None) for name, site in SITES.items()}
    return {
        name: (site, str(_write(name, source / f"{name}.txt", target)))
        for name, site in SITES.items()
    }


def _write(name: str, source: Path, target: Path) -> Path:
    lines = []
    for line in source.read_text().splitlines():
        if line and not line.startswith("#"):
            full_name, kind, address = line.split()
            lines.append(f"{full_name} py:{kind} 1 {address} -\n")
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{name}.inv"
    path.write_bytes(HEAD.format(name=name).encode() + zlib.compress("".join(lines).encode()))
    return path
