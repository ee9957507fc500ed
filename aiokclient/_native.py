"""Whether native modules are wanted.

Beside some Python modules stand native ones (Cython) that do the same faster. The Python ones serve
where those were not built, and everywhere with `AIOKCLIENT_PURE=1` in the environment. What picks
does so once, at its import.
"""

from __future__ import annotations

import os

__all__ = ["WANTED"]

WANTED = os.environ.get("AIOKCLIENT_PURE", "0") in ("", "0")
