"""The check that an error shows no secret, not even in the local variables of its traceback."""

from __future__ import annotations

import traceback
from typing import Any

OWN = ("aiokclient",)


def assert_hidden(error: BaseException, secret: str, *, source_has_it: bool = False) -> None:
    """Assert that neither the texts nor the local variables of an error contain the secret.

    The local variables of the library's functions are checked, in the tracebacks of the error and
    of its causes. If ``source_has_it``, the traceback shows a line of the test that contains the
    secret, so the text of the traceback is not checked.
    """
    assert secret not in f"{error} {error!r}"
    if not source_has_it:
        assert secret not in "".join(traceback.format_exception(error))
    found: BaseException | None = error
    seen: list[BaseException] = []
    while found is not None:
        assert found not in seen, "the causes of the error are a circle"
        seen.append(found)
        for frame, _ in traceback.walk_tb(found.__traceback__):
            if frame.f_globals.get("__name__", "").startswith(OWN):
                for name, value in frame.f_locals.items():
                    assert secret not in shown(value), f"{frame.f_code.co_name}: {name}"
        found = found.__cause__ or found.__context__


def shown(value: Any) -> str:
    """Return the repr of a value, which may be an object whose constructor has failed."""
    try:
        return repr(value)
    except AttributeError:
        return ""
