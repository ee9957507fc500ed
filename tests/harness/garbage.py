"""Garbage collections that leave out the objects which live as long as the tests.

The modules and the tests that pytest has collected are millions of objects. Without the exclusion,
tests that collect garbage would spend most of their time on them.
"""

import gc

OFTEN = 8
"""Measurements after which the objects are examined again, which takes half a second."""


class Excluded:
    """The exclusion of the objects that existed between two tests, and whether it is in effect."""

    def __init__(self) -> None:
        self._frozen = False
        self._measurements = 0

    def ensure(self) -> None:
        """Collect all garbage, and exclude all remaining objects, unless this was already done."""
        if not self._frozen:
            gc.collect()
            gc.freeze()
            self._frozen = True

    def end(self) -> None:
        """Include all objects again, until the next `ensure`.

        Only some of the calls do so. The objects of the tests since then stay excluded until the
        next one that does.
        """
        self._measurements += 1
        if self._measurements % OFTEN == 0:
            gc.unfreeze()
            self._frozen = False


excluded = Excluded()
