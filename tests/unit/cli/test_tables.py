"""Tables on terminals of different widths."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokclient.cli.output import Column, draw_tables

Draw = Callable[..., list[str]]
MEMBER = "030f7526-0b22-4fbf-824d-9ec01eff23e2"
CLIENT = ["billing-1", "/127.0.0.1"]
TIME = "2026-11-29T21:55:06.432Z"
LAG = [
    Column("group id", ["billing", "billing"]),
    Column("topic", ["orders", "orders"]),
    Column("partition", ["0", "11"], True),
    Column("committed", ["480", "580"], True),
    Column("end", ["480", "960"], True),
    Column("lag", ["0", "380"], True),
    Column("member id", [MEMBER, MEMBER]),
    Column("client id", ["billing-1", "billing-1"]),
    Column("host", ["/127.0.0.1", "/127.0.0.1"]),
]
HANGING = [
    Column("topic", ["payments"]),
    Column("partition", ["1"], True),
    Column("producer id", ["2004"], True),
    Column("producer epoch", ["0"], True),
    Column("coordinator epoch", ["-"], True),
    Column("start offset", ["720"], True),
    Column("last timestamp iso", [TIME]),
    Column("transactional id", ["settle-1"]),
]


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Return a function that draws a table on a terminal of a width, and returns its lines."""

    def draw(width: int, columns: list[Column], title: str = "") -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        lines = draw_tables([(title, columns)]).splitlines()
        assert all(len(line) <= width for line in lines)
        return lines

    return draw


def test_a_table_that_fits_has_wide_gaps_and_whole_values(draw: Draw) -> None:
    lines = draw(130, LAG, "Lag")
    assert lines[0] == "Lag"
    assert lines[1].startswith("group id   topic    partition   committed   end   lag   member id")
    assert lines[3].split() == ["billing", "orders", "0", "480", "480", "0", MEMBER, *CLIENT]


def test_a_long_id_is_cut_on_a_narrow_terminal_and_no_other_value(draw: Draw) -> None:
    lines = draw(82, LAG)
    *numbers, member, client, host = lines[-1].split()
    assert numbers == ["billing", "orders", "11", "580", "960", "380"]
    assert member.endswith("…")
    assert MEMBER.startswith(member.removesuffix("…"))
    assert [client, host] == CLIENT


def test_the_names_of_columns_are_broken_only_between_words(draw: Draw) -> None:
    words = {word for line in draw(82, LAG)[:2] for word in line.split()}
    assert words == {word for column in LAG for word in column.name.split()}


def test_the_first_column_is_whole_since_it_has_the_names_of_the_rows(draw: Draw) -> None:
    columns = [Column("member id", [MEMBER]), Column("group instance id", ["-"], True)]
    assert draw(46, columns)[-1].split() == [MEMBER, "-"]


def test_a_time_continues_after_its_date(draw: Draw) -> None:
    lines = draw(100, HANGING)
    assert "2026-11-29 " in lines[-2]
    assert lines[-1].strip() == "21:55:06.432Z"


def test_rows_that_fit_in_no_way_are_lines_of_names_and_values(draw: Draw) -> None:
    twice = [column._replace(cells=[*column.cells] * 2) for column in HANGING]
    lines = draw(60, twice)
    row = [line.split(maxsplit=1)[0] for line in lines[: len(HANGING)]]
    assert row == [column.name.split()[0] for column in HANGING]
    assert lines[5] == "start offset        720"
    assert lines[len(HANGING)] == ""
    assert lines[len(HANGING) + 1 :] == lines[: len(HANGING)]


def test_a_text_that_would_be_folded_into_many_lines_is_a_line_of_its_row(draw: Draw) -> None:
    text = "The name kafka-2.invalid cannot be resolved, and so the broker cannot be used. " * 2
    columns = [Column("subject", ["broker 2"]), Column("text", [text]), Column("advice", [text])]
    lines = draw(80, columns)
    assert lines[0] == "subject  broker 2"
    assert lines[1].startswith("text     The name kafka-2.invalid")


def test_a_table_without_rows_has_the_names_of_its_columns(draw: Draw) -> None:
    empty = [column._replace(cells=[]) for column in LAG]
    words = {word for line in draw(80, empty) for word in line.split() if "─" not in word}
    assert words == {word for column in LAG for word in column.name.split()}
