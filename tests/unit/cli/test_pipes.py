"""Tests of the pipe from which lines are read."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from aiokclient.cli.records.sending import PIPE, _enlarge_pipe


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets the size be chosen")
def test_a_pipe_is_enlarged() -> None:
    reader, writer = os.pipe()
    try:
        _enlarge_pipe(reader)
        assert fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) == PIPE
    finally:
        os.close(reader)
        os.close(writer)


def test_a_file_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n")
    with path.open("rb") as file:
        _enlarge_pipe(file.fileno())
        assert file.read() == b"a\nb\n"
