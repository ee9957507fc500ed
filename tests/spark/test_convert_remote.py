"""The conversion of a checkpoint in a file system that only Spark can open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiokclient.errors import ConfigError
from aiokclient.spark.checkpoint_files import HadoopFiles
from aiokclient.spark.convert import convert, main


@pytest.fixture
def root(spark: Any, tmp_path: Path) -> str:
    """A checkpoint of the connector. `viewfs` is a file system of Hadoop without a local path."""
    for name, text in {
        "offsets/0": 'v1\n{}\n{"orders":{"0":10}}',
        "offsets/1": 'v1\n{}\n{"orders":{"0":20}}',
        "commits/0": "v1\n{}",
        "sources/0/0": 'v1\n{"orders":{"0":3}}',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    mounts = spark._jsc.hadoopConfiguration()
    mounts.set("fs.viewfs.mounttable.tests.link./checkpoint", tmp_path.as_uri())
    mounts.set("fs.viewfs.impl.disable.cache", "true")
    return "viewfs://tests/checkpoint"


def test_checkpoint_in_another_file_system_is_converted(root: str, tmp_path: Path) -> None:
    done = convert(root)
    assert (done.batches, done.backup) == ((0, 1), f"{root}/offsets.connector")
    first = (tmp_path / "offsets/0").read_text()
    assert '"offsets": {"0": 10}' in first
    assert '"starts": {"orders": {"0": 3}}' in first
    assert (tmp_path / "offsets.connector/1").read_text() == 'v1\n{}\n{"orders":{"0":20}}'
    assert convert(root).batches == ()


@pytest.mark.long
def test_interrupted_conversion_in_another_file_system_is_completed(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = HadoopFiles.rename_folder

    def interrupted(files: HadoopFiles, old: str, new: str) -> None:
        if new == "offsets":
            raise OSError("interrupted")
        rename(files, old, new)

    with monkeypatch.context() as patched:
        patched.setattr(HadoopFiles, "rename_folder", interrupted)
        assert main([root]) == 1
    assert not (tmp_path / "offsets").exists()
    assert main([root]) == 0
    assert '"offsets": {"0": 20}' in (tmp_path / "offsets/1").read_text()


def test_file_system_that_spark_cannot_open_is_an_error_that_says_what_to_do(spark: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        convert("nofs://host/checkpoint")
    said = str(raised.value)
    assert said.startswith("Spark cannot open nofs://host/checkpoint: ")
    assert "No FileSystem for scheme" in said
    assert "copy the checkpoint to a local folder" in said
