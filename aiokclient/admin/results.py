"""The results of an admin call that takes several items, and the numbers in results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Self, TypeVar

from aiokclient.errors import KafkaError
from aiokclient.types import public_in

if TYPE_CHECKING:
    from aiokclient.log.client_log import ClientLog

K = TypeVar("K")
V = TypeVar("V")


class OpenEnum(IntEnum):
    """An enumeration of Kafka's protocol to which later versions may add members.

    A number that is none of the members becomes the member UNKNOWN.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls["UNKNOWN"]


@public_in("aiokclient.admin")
class Results(Mapping[K, V | KafkaError]):
    """A mapping from each item of a call to its result or its error, in the order of the call.

    One item can fail while the others succeed, so errors are raised only on request:

        created = await admin.create_topics([NewTopic("a"), NewTopic("b")])
        created["a"]                  # a CreatedTopic, or the KafkaError that prevented it
        created.errors                # the errors of the items that failed
        created.raise_for_errors()    # the results if all items succeeded; raises otherwise

    If items have failed, and the program looks at none of the errors, a WARNING is logged when the
    results are dropped.
    """

    __slots__ = ("_is_read", "_log", "_results")

    def __init__(self, results: Mapping[K, V | KafkaError], log: ClientLog | None = None) -> None:
        self._results = dict(results)
        self._log = log
        self._is_read = log is None

    def __del__(self) -> None:
        if getattr(self, "_is_read", True) or not (errors := self.errors):
            return
        key, error = next(iter(errors.items()))
        assert self._log is not None
        self._log.warning(
            "%d of %d items of an admin call have failed, and the program did not look at their "
            "errors. The first is %s: %s: %s Call raise_for_errors() on the results.",
            len(errors),
            len(self._results),
            key,
            type(error).__name__,
            error,
            extra={"event": "unread_errors"},
        )

    def __reduce__(self) -> tuple[type[Results[K, V]], tuple[Mapping[K, V | KafkaError]]]:
        self._is_read = True  # The copy is looked at elsewhere.
        return type(self), (self._results,)

    def __getitem__(self, key: K) -> V | KafkaError:
        found = self._results[key]
        self._is_read = self._is_read or isinstance(found, KafkaError)
        return found

    def __iter__(self) -> Iterator[K]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        self._is_read = True
        return f"Results({self._results!r})"

    @property
    def ok(self) -> bool:
        """Whether all items succeeded."""
        return not self.errors

    @property
    def errors(self) -> dict[K, KafkaError]:
        """The errors of the items that failed."""
        self._is_read = True
        return {key: got for key, got in self._results.items() if isinstance(got, KafkaError)}

    @property
    def succeeded(self) -> dict[K, V]:
        """The results of the items that succeeded."""
        return {key: got for key, got in self._results.items() if not isinstance(got, KafkaError)}

    def raise_for_errors(self) -> dict[K, V]:
        """Return the results if all items succeeded, or raise the first error.

        The raised error has notes on the errors of the other items.
        """
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
