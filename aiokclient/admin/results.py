"""What an admin call that asks for several things answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from aiokclient.errors import KafkaError

__all__ = ["Results"]

K = TypeVar("K")
V = TypeVar("V")


class Results(Mapping[K, V | KafkaError]):
    """A mapping from each thing asked for, in the order asked, to its result or its error.

    One thing's failure is no failure of the others, so nothing is raised until asked for:

        created = await admin.create_topics([NewTopic("a"), NewTopic("b")])
        created["a"]                  # a CreatedTopic, or the KafkaError that prevented it
        created.errors                # only what failed
        created.raise_for_errors()    # all succeeded or it raises; gives the results
    """

    __slots__ = ("_results",)

    def __init__(self, results: Mapping[K, V | KafkaError]) -> None:
        self._results = dict(results)

    def __getitem__(self, key: K) -> V | KafkaError:
        return self._results[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"Results({self._results!r})"

    @property
    def ok(self) -> bool:
        """Nothing failed."""
        return not self.errors

    @property
    def errors(self) -> dict[K, KafkaError]:
        """What failed, and why."""
        return {key: got for key, got in self._results.items() if isinstance(got, KafkaError)}

    @property
    def succeeded(self) -> dict[K, V]:
        """What succeeded, without its failures."""
        return {key: got for key, got in self._results.items() if not isinstance(got, KafkaError)}

    def raise_for_errors(self) -> dict[K, V]:
        """The results if all succeeded; else raises the first error, with notes on the others."""
        errors = self.errors
        if not errors:
            return self.succeeded
        first, *others = errors.items()
        error = first[1]
        if others and not getattr(error, "__notes__", None):
            error.add_note(f"{len(errors)} of {len(self)} failed; the others:")
            for key, other in others[:20]:
                error.add_note(f"{key}: {type(other).__name__}: {other}")
        raise error
