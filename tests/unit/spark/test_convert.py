"""Tests of the conversion of a checkpoint of Spark's Kafka connector."""

import json
import sys
from pathlib import Path

import pytest

from aiokclient import TopicPartition
from aiokclient.errors import ConfigError
from aiokclient.spark.convert import convert, main
from aiokclient.spark.source.offsets import parse

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'
FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)


def batch(*sources: str, version: str = "v1") -> str:
    return "\n".join((version, METADATA, *sources))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return a checkpoint whose batch 1 is planned and not committed."""
    write(tmp_path, "offsets/0", batch('{"orders":{"0":10}}'))
    write(tmp_path, "offsets/1", batch('{"orders":{"1":5,"0":20}}'))
    write(tmp_path, "commits/0", "v1\n{}")
    write(tmp_path, "sources/0/0", '\0v1\n{"orders":{"0":3}}')
    write(tmp_path, "metadata", '{"id":"query"}')
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_batch_is_converted_and_the_rest_of_the_checkpoint_stays(checkpoint: Path) -> None:
    before = files(checkpoint)
    done = convert(checkpoint)
    after = files(checkpoint)
    assert done.batches == (0, 1)
    first, second = (after[f"offsets/{n}"].split("\n") for n in (0, 1))
    assert first[:2] == second[:2] == ["v1", METADATA]
    assert parse(json.loads(first[2])).offsets == {FIRST: 10}
    assert parse(json.loads(first[2])).starts == {FIRST: 3}
    assert parse(json.loads(second[2])).offsets == {FIRST: 20, SECOND: 5}
    assert parse(json.loads(second[2])).starts == {}
    for name, text in before.items():
        assert after[name.replace("offsets/", "offsets.connector/")] == text


def test_a_checkpoint_that_is_converted_already_stays_as_it_is(checkpoint: Path) -> None:
    convert(checkpoint)
    before = files(checkpoint)
    assert convert(checkpoint).batches == ()
    assert files(checkpoint) == before


def test_checksums_of_the_old_files_are_not_taken_over(checkpoint: Path) -> None:
    write(checkpoint, "offsets/.0.crc", "checksum")
    convert(checkpoint)
    assert not (checkpoint / "offsets/.0.crc").exists()
    assert (checkpoint / "offsets.connector/.0.crc").exists()


@pytest.mark.parametrize("exchanged", [False, True])
def test_an_interrupted_conversion_is_completed_by_the_next_one(
    checkpoint: Path, exchanged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if path.name == ("offsets.converting" if exchanged else "offsets"):
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert(checkpoint)
    convert(checkpoint)
    names = set(files(checkpoint))
    assert {"offsets/0", "offsets/1", "offsets.connector/0", "offsets.connector/1"} <= names
    assert not any(name.startswith("offsets.converting") for name in names)
    line = (checkpoint / "offsets/1").read_text().split("\n")[2]
    assert parse(json.loads(line)).offsets == {FIRST: 20, SECOND: 5}


def test_exchange_that_an_object_store_has_not_completed_is_refused_with_what_to_do(
    checkpoint: Path,
) -> None:
    before = (checkpoint / "offsets/0").read_text()
    convert(checkpoint)
    # The first rename was completed, the second one has copied a part of the files.
    write(checkpoint, "offsets.converting/1", (checkpoint / "offsets/1").read_text())
    with pytest.raises(ConfigError, match=r"may lack batches.* rename .*connector to offsets"):
        convert(checkpoint)
    # The first rename has copied a part of the files.
    write(checkpoint, "offsets/0", before)
    with pytest.raises(ConfigError, match=r"but .*/offsets is not converted"):
        convert(checkpoint)


WRONG = [
    ("offsets/1", batch('{"orders":{"0":20}', version="v2"), "begins with 'v2'. Only offset logs"),
    (
        "offsets/1",
        batch('{"orders" {}}'),
        "offsets/1 is not JSON: Expecting ':' delimiter at line 1, column 11.",
    ),
    ("offsets/1", batch('{"logOffset":4}'), "does not have offsets of Spark's Kafka connector"),
    (
        "offsets/1",
        batch('{"version": 1, "topics": {}}'),
        "The line 3 of offsets/1 has offsets of aiokclient already.",
    ),
    ("offsets/1", batch(), "ends after 2 lines"),
    ("offsets/1", "", "begins with ''"),
    ("offsets/1.tmp", "", "is not a batch of an offset log"),
    ("sources/0/0", 'v1\n{"orders":{"0":-2}}', "does not have the starting offsets"),
]


@pytest.mark.parametrize(("name", "content", "text"), WRONG)
def test_what_is_not_understood_is_refused_and_nothing_changes(
    checkpoint: Path, name: str, content: str, text: str
) -> None:
    write(checkpoint, name, content)
    before = files(checkpoint)
    with pytest.raises(ConfigError) as raised:
        convert(checkpoint)
    assert text in str(raised.value)
    assert files(checkpoint) == before


def test_a_committed_first_batch_needs_no_starting_offsets(
    checkpoint: Path,
) -> None:
    (checkpoint / "sources/0/0").unlink()
    convert(checkpoint)


def test_a_planned_first_batch_needs_its_starting_offsets(checkpoint: Path) -> None:
    (checkpoint / "sources/0/0").unlink()
    (checkpoint / "commits/0").unlink()
    with pytest.raises(ConfigError, match="sources/0/0, which has its starting offsets, is miss"):
        convert(checkpoint)


def test_the_connectors_sources_among_others_are_named_by_their_position(checkpoint: Path) -> None:
    for number in (0, 1):
        write(checkpoint, f"offsets/{number}", batch('{"logOffset":4}', '{"orders":{"0":20}}', "-"))
    write(checkpoint, "sources/1/0", 'v1\n{"orders":{"0":3}}')
    with pytest.raises(ConfigError, match=r"The line 3 of offsets/0 .* --source"):
        convert(checkpoint)
    assert convert(checkpoint, [1]).sources == (1,)
    lines = (checkpoint / "offsets/1").read_text().split("\n")
    assert (lines[2], lines[4]) == ('{"logOffset":4}', "-")
    assert parse(json.loads(lines[3])).offsets == {FIRST: 20}
    assert convert(checkpoint, [1]).batches == ()


@pytest.mark.parametrize("source", [-1, 1])
def test_a_position_without_a_source_is_refused(checkpoint: Path, source: int) -> None:
    with pytest.raises(ConfigError, match=f"none has the position {source}. The first position is"):
        convert(checkpoint, [source])


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no folder offsets"):
        convert(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder"):
        convert(tmp_path / "missing")
    with pytest.raises(ConfigError, match="names a host"):
        convert("file://host/checkpoint")


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "file://localhost"])
def test_a_local_folder_may_be_a_uri(checkpoint: Path, prefix: str) -> None:
    checkpoint = checkpoint.rename(f"{checkpoint} %20")
    assert convert(f"{prefix}{checkpoint}").batches == (0, 1)


def test_another_file_system_needs_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ConfigError) as raised:
        convert("s3a://bucket/checkpoint")
    assert str(raised.value).startswith(
        "s3a://bucket/checkpoint is not a local folder, and pyspark, which can open it, is not "
        "installed. Install aiokclient[spark]. Or copy the checkpoint to a local folder"
    )


def test_the_command_says_what_it_did_and_where_the_backup_is(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(checkpoint)]) == 0
    out = capsys.readouterr().out
    assert "Converted the batches 0 to 1 of the sources 0." in out
    assert str(checkpoint / "offsets.connector") in out
    assert main([str(checkpoint)]) == 0
    assert "is converted already" in capsys.readouterr().out


def test_the_command_says_why_it_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"aiokclient: {tmp_path} is not the checkpoint of")
