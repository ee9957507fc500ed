"""Tests of the mapping from each requested item to its result or its error."""

from __future__ import annotations

import pytest

from aiokclient.admin import Results
from aiokclient.errors import TopicAuthorizationError, TopicExistsError


def test_results_are_a_mapping_of_values_when_nothing_failed() -> None:
    results: Results[str, int] = Results({"a": 1, "b": 2})
    assert results.ok
    assert results.errors == {}
    assert results.raise_for_errors() == results.succeeded == dict(results) == {"a": 1, "b": 2}
    assert (len(results), list(results), "c" in results) == (2, ["a", "b"], False)
    assert repr(results) == "Results({'a': 1, 'b': 2})"


def test_raise_for_errors_raises_the_only_error() -> None:
    error = TopicExistsError()
    results: Results[str, int | None] = Results({"a": error, "b": None})
    assert not results.ok
    assert results["a"] is error
    assert results.errors == {"a": error}
    assert results.succeeded == {"b": None}
    with pytest.raises(TopicExistsError) as caught:
        results.raise_for_errors()
    assert caught.value is error
    assert not hasattr(error, "__notes__")


def test_raise_for_errors_lists_the_other_errors_as_notes() -> None:
    first, second = TopicExistsError(), TopicAuthorizationError("who are you")
    results: Results[str, int] = Results({"a": 1, "b": first, "c": second})
    for _ in range(2):
        with pytest.raises(TopicExistsError) as caught:
            results.raise_for_errors()
    notes = caught.value.__notes__
    assert notes[0] == "2 of 3 failed; the others:"
    assert notes[1].startswith("c: TopicAuthorizationError: TOPIC_AUTHORIZATION_FAILED (29)")
    assert len(notes) == 2
