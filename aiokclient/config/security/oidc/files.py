"""Files with secrets, which are read again whenever they are used."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aiokclient.config.secret import Secret
from aiokclient.errors import TokenProviderError

__all__ = ["read_secret"]

MAX_FILE: Final = 1024 * 1024


def read_secret(path: str) -> Secret:
    """Return the content of a file, at most 1 MiB. Blocking.

    Raises TokenProviderError if it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return Secret(file.read(MAX_FILE).decode("utf-8-sig", "replace"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise TokenProviderError(f"The file {path} cannot be read: {reason}.") from error
