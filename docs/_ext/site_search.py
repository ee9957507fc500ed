"""The search page of the site and its index, and the site as text: `llms.txt`, `llms-full.txt`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from site_text import contents, everything, search_index

__all__ = ["setup"]


def write(app: Any, error: Exception | None) -> None:
    """Write the files that are made from the text of all pages."""
    if error is not None or app.builder.name not in ("html", "dirhtml"):
        return
    target = Path(app.outdir)
    index = json.dumps(search_index(), separators=(",", ":"), ensure_ascii=False)
    (target / "_static" / "search-index.js").write_text(f"globalThis.SEARCH_INDEX = {index};\n")
    (target / "llms.txt").write_text(contents())
    (target / "llms-full.txt").write_text(everything())


def setup(app: Any) -> dict[str, Any]:
    """Connect to the end of a build."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
