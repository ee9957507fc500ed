"""Folders that several test runs may prepare at the same time; only one does the work."""

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
CACHE = REPOSITORY / ".kafka"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file. The system releases it when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def prepared(target: Path, make: Callable[[Path], None]) -> Path:
    """Return ``target``, created once by ``make(temporary)`` and renamed when complete."""
    if target.exists():
        return target
    with locked(target.parent / f".{target.name}.lock"):
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=".making-", dir=target.parent) as folder:
                temporary = Path(folder, target.name)
                make(temporary)
                shutil.move(temporary, target)
    return target
