"""Exclusion of the objects that live as long as the tests from garbage collections.

Modules and collected tests are millions of objects. Tests that collect garbage would spend most of
their time on them.
"""

import gc


class Excluded:
    """Whether the objects that existed between two tests are excluded."""

    def __init__(self) -> None:
        self._frozen = False

    def ensure(self) -> None:
        """Collect all garbage, and exclude all remaining objects, unless this was already done."""
        if not self._frozen:
            gc.collect()
            gc.freeze()
            self._frozen = True

    def end(self) -> None:
        """Include all objects again, until the next `ensure`."""
        gc.unfreeze()
        self._frozen = False


excluded = Excluded()
