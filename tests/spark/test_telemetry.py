"""The pipeline of client metrics: its sums are right even if pushes are lost, late, or repeated."""

from __future__ import annotations

import asyncio
import math
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import counting_fleet
import pytest
import telemetry_query
from counting_fleet import FAILING, GROUP, SHOPS, SLOW, Counted, Pushed
from otlp_payloads import SECOND_US, headers, histogram, payload
from pushed_metrics import values
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from aiokclient import ProducerRecord
from aiokclient.errors import ConfigError
from aiokclient.spark import telemetry
from aiokclient.spark.telemetry import query
from aiokclient.spark.telemetry.picture import title
from aiokclient.spark.telemetry.views import LATENCIES
from aiokclient.testing import EmbeddedCluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "telemetry-spark.md"
SENT = "org.apache.kafka.producer.record.send.total"
ERRORS = "org.apache.kafka.producer.record.error.total"
LOST, DOUBLED, BROKEN, QUIET = SHOPS
FILES = 3
PUSHES = 16


class Delivered(NamedTuple):
    """The pushes of the fleet that the pipeline receives, and those that it misses."""

    records: list[Pushed]
    missing: list[Pushed]
    """Pushes that the pipeline cannot or must not count."""
    interior: Counter[str]
    """The number of missing pushes between counted pushes, by client."""


def client_of(record: Pushed) -> str:
    return dict(record.headers)["client_id"].decode()


def value_of(record: Pushed, metric: str) -> float:
    """Return the value of a metric in a push, decoded by the tests' own code."""
    return sum(each.number for each in values(record.value) if each.name == metric)


def with_value(record: Pushed, value: bytes) -> Pushed:
    return record._replace(value=value)


def disturb(records: Sequence[Pushed]) -> Delivered:
    """Lose, repeat, break, delay, or reorder pushes, in one of these ways for each client."""
    of: dict[str, list[Pushed]] = {}
    for record in records:
        of.setdefault(client_of(record), []).append(record)
    half = len(of[QUIET]) // 2
    lost = [of[LOST][3], of[LOST][7], *of[QUIET][half:]]
    broken = [of[BROKEN][2], of[BROKEN][5], of[BROKEN][9]]
    late = of[FAILING][2]
    twice = [of[DOUBLED][4], of[DOUBLED][8]]
    swapped = {id(of[SLOW][5]): of[SLOW][6], id(of[SLOW][6]): of[SLOW][5]}
    delivered: list[Pushed] = []
    for record in records:
        if any(record is each for each in (*lost, late)):
            continue
        if any(record is each for each in broken):
            record = with_value(record, record.value[:-3])
        record = swapped.get(id(record), record)
        delivered.append(record)
        if any(record is each for each in twice):
            delivered.append(record)
    garbage = with_value(records[0], b"\xff" * 40)._replace(key=None, headers=[])
    delivered[10:10] = [garbage]
    delivered.append(late)
    interior = Counter({LOST: 2, BROKEN: 3, FAILING: 1})
    return Delivered(delivered, [*lost, *broken, late], interior)


@pytest.fixture(scope="module")
def counted() -> Counted:
    """The pushes of a fleet, and the values that it counted."""
    return asyncio.run(counting_fleet.run_fleet(PUSHES))


@pytest.fixture(scope="module")
def delivered(counted: Counted) -> Delivered:
    """The disturbed pushes."""
    return disturb(counted.records)


@pytest.fixture(scope="module")
def source(delivered: Delivered, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files with the disturbed pushes."""
    folder = tmp_path_factory.mktemp("telemetry") / "source"
    telemetry_query.write_source(delivered.records, folder, FILES)
    return folder


@pytest.fixture(scope="module")
def tables(spark: SparkSession, source: Path) -> telemetry.Tables:
    """The tables that the pipeline writes when nothing kills it."""
    telemetry_query.run(spark, source, source.parent / "whole")
    return read(spark, source.parent / "whole")


def read(spark: SparkSession, out: Path) -> telemetry.Tables:
    return telemetry.read_tables(spark, str(out / "tables"))


def sums(points: DataFrame, metric: str) -> Counter[str]:
    """Return the total of a metric of each client."""
    rows = telemetry.totals(points.where(f"metric = '{metric}'")).collect()
    found = Counter[str]()
    for row in rows:
        found[row["client_id"]] += row["value"]
    return found


def expected(counted: dict[str, int], missing: Sequence[Pushed], metric: str) -> Counter[str]:
    """Return the counts of the clients, less the values in their missing pushes."""
    found = Counter[str](counted)
    for record in missing:
        if client_of(record) in found:
            found[client_of(record)] -= value_of(record, metric)
    return found


def rows(frame: DataFrame) -> list[str]:
    """Return the rows as sorted texts, without the id of the query that wrote them."""
    plain = frame.selectExpr("* EXCEPT (batch)", "right(batch, 9) AS batch")
    return sorted(repr(row) for row in plain.collect())


def test_sums_of_undisturbed_pushes_are_those_that_the_fleet_counted(
    spark: SparkSession, counted: Counted, tmp_path: Path
) -> None:
    telemetry_query.write_source(counted.records, tmp_path / "all", 1)
    points = telemetry.read_points(spark.read.parquet(str(tmp_path / "all"))).persist()
    found = sums(points, SENT)
    assert {name: found[name] for name in (*SHOPS, SLOW)} == {
        name: counted.sent[name] for name in (*SHOPS, SLOW)
    }
    assert min(counted.sent[name] for name in (*SHOPS, SLOW)) > 0
    assert sums(points, ERRORS)[FAILING] == counted.failed[FAILING] > 0
    assert telemetry.lost_pushes(points).count() == 0


def test_sums_are_those_of_the_fleet_without_what_was_lost(
    counted: Counted, delivered: Delivered, tables: telemetry.Tables
) -> None:
    found = sums(tables.points, SENT)
    wanted = expected(counted.sent, delivered.missing, SENT)
    assert {name: found[name] for name in (*SHOPS, SLOW)} == {
        name: wanted[name] for name in (*SHOPS, SLOW)
    }
    assert wanted[LOST] < counted.sent[LOST]
    assert wanted[DOUBLED] == counted.sent[DOUBLED]
    failed = expected(counted.failed, delivered.missing, ERRORS)
    assert sums(tables.points, ERRORS)[FAILING] == failed[FAILING]


def test_rejected_pushes_have_a_reason(tables: telemetry.Tables) -> None:
    found = Counter({(r["status"], r["client_id"]): r["pushes"] for r in views(tables)})
    assert found == {
        ("broken", BROKEN): 3,
        ("broken", None): 1,
        ("duplicate", DOUBLED): 2,
        ("late", FAILING): 1,
    }
    reasons = {(row["status"], row["client_id"]): row["example"] for row in views(tables)}
    assert "not OTLP" in reasons["broken", BROKEN]
    assert "no client instance id" in reasons["broken", None]
    assert "older than the watermark" in reasons["late", FAILING]


def views(tables: telemetry.Tables) -> list[Any]:
    counts: list[Any] = telemetry.rejections(tables.rejected).collect()
    return counts


def test_lost_pushes_are_recognized(delivered: Delivered, tables: telemetry.Tables) -> None:
    lost = telemetry.lost_pushes(tables.points).collect()
    assert Counter(row["client_id"] for row in lost) == delivered.interior


def test_throughput_and_lag_are_those_of_the_fleet_by_time(
    counted: Counted, delivered: Delivered, tables: telemetry.Tables
) -> None:
    rows = telemetry.throughput_by_client(tables.points).collect()
    sent: Counter[str] = Counter()
    for row in rows:
        if row["direction"] == "sent":
            sent[row["client_id"]] += round(row["records"])
        assert row["per_second"] >= 0
    wanted = expected(counted.sent, delivered.missing, SENT)
    assert {name: sent[name] for name in SHOPS} == {name: wanted[name] for name in SHOPS}
    assert any(row["direction"] == "consumed" and row["records"] > 0 for row in rows)
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    lags = telemetry.lag_by_client(tables.points).collect()
    assert {row["group_id"] for row in lags} == {GROUP}
    assert all(row["lag"] >= row["highest"] >= 0 and row["partitions"] > 0 for row in lags)


def test_dashboard_names_the_slow_and_the_silent_client(
    tables: telemetry.Tables, tmp_path: Path
) -> None:
    dashboard = telemetry.make_dashboard(tables)
    assert [row["client_id"] for row in dashboard.slow] == [SLOW]
    assert [row["client_id"] for row in dashboard.silent] == [QUIET]
    assert dashboard.errors[0]["client_id"] == FAILING
    assert [row["group_id"] for row in dashboard.rebalances] == [GROUP]
    assert dashboard.rebalances[0]["members"] == 2
    assert dashboard.rebalances[0]["rebalances"] >= 2
    assert sum(row["instances"] for row in dashboard.fleet) == counting_fleet.CLIENTS
    summary = list(dashboard.summary())
    assert any(line.startswith(f"slow: {SLOW}, ") for line in summary)
    assert any(line.startswith(f"silent: {QUIET}, ") for line in summary)
    for rows in (dashboard.throughput, dashboard.lag, dashboard.error_history, dashboard.lives):
        assert rows
    assert sum(row["increase"] for row in dashboard.rebalance_history) >= 2
    assert f"{SLOW} is slow" in title(dashboard)
    assert f"{QUIET} is silent." in title(dashboard)
    dashboard.draw(tmp_path / "dashboard.png")
    assert (tmp_path / "dashboard.png").read_bytes().startswith(b"\x89PNG")


def test_parquet_is_partitioned_by_date(tables: telemetry.Tables, source: Path) -> None:
    folders = [path.name for path in (source.parent / "whole/tables/points").glob("date=*")]
    dates = {str(row["date"]) for row in tables.points.select("date").distinct().collect()}
    assert {f"date={date}" for date in dates} == set(folders)


def test_records_of_any_content_are_rows_or_rejected_and_all_views_work(
    spark: SparkSession, tmp_path: Path
) -> None:
    now = 1_700_000_000 * SECOND_US
    latency, zero = {LATENCIES[0]: 5_000.0}, {LATENCIES[0]: 0.0}

    def push(value: bytes, name: str, time: int = now // 1_000, **more: str) -> Pushed:
        return Pushed(name.encode(), value, headers(name, f"${name}\\x$", **more), time)

    broken = [
        push(histogram(now, now, "lag", [1, 2], [1, 2]), "i"),
        push(histogram(now, now, "lag", [], [1 << 63]), "i"),
        push(payload(now, now, {"": 1}), "i"),
        push(payload(now, now, {"a": 1}), "i", 253_402_300_800_000),
        # The time of this push is later than all others. The push must not make the others late.
        push(b"\xff", "i", 4_102_444_800_000),
    ]
    # The clients push several times in a millisecond, and the usual latency is 0.
    correct = [
        push(payload(now + n, now + n + 1, {"x.error.total": 1}, zero), f"i{client}")
        for client in range(3)
        for n in (1, 2, 4)
    ]
    correct += [
        push(payload(now, now, {"sent.total": math.inf}, latency), "slow"),
        push(payload(now, now, {}, {LATENCIES[0]: math.inf}), "slow", push_interval_ms="9" * 30),
        push(payload(now, now, {"x.error.total": math.nan}), "slow"),
        # A consumer of an idle topic is not slow. Its fetches wait for records.
        push(payload(now, now, {}, {LATENCIES[1]: 500.0}), "i"),
        *(push(payload(now, now, {}, {LATENCIES[1]: 1.0 * n}), f"i{n}") for n in range(3)),
        push(payload(now, now, {"sent.total": math.nan}), "i", -1),
    ]
    telemetry_query.write_source([*broken, *correct], tmp_path / "source", 2)
    telemetry_query.run(spark, tmp_path / "source", tmp_path)
    tables = read(spark, tmp_path)
    rejected = tables.rejected.orderBy("offset").collect()
    assert [(row["status"], row["offset"]) for row in rejected] == [
        ("broken", offset) for offset in range(len(broken))
    ]
    assert tables.points.select("offset").distinct().count() == len(correct)
    dashboard = telemetry.make_dashboard(tables, "2030-01-01 00:00:00")
    assert [row["client_id"] for row in dashboard.slow] == ["$slow\\x$"]
    assert sum(row["pushes"] for row in dashboard.lost) == 3
    assert [row["errors"] for row in dashboard.errors] == [3.0] * 3
    dashboard.draw(tmp_path / "dashboard.png")
    telemetry.totals(tables.points).toPandas()


@pytest.mark.long
def test_killed_and_restarted_pipeline_writes_the_same_parquet(
    spark: SparkSession,
    source: Path,
    tables: telemetry.Tables,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The query dies after its second batch has written points, but no rejected records yet.
    program = [sys.executable, telemetry_query.__file__, str(source), str(tmp_path)]
    log = tmp_path / "log"
    with log.open("wb") as output:  # Spark's workers may outlive the process and hold a pipe open.
        killed = subprocess.run(
            [*program, str(tmp_path / "spark"), "3"],
            start_new_session=True,
            stdout=output,
            stderr=output,
            check=False,
            timeout=120,
        )
    assert killed.returncode == -signal.SIGKILL, log.read_text()
    assert rows(read(spark, tmp_path).points) != rows(tables.points)
    # The next run writes that batch again, and dies before it commits the batch after it.
    monkeypatch.setattr(query, "_write", telemetry_query.after_tables(4, lambda: 1 / 0))
    with pytest.raises(Exception, match="ZeroDivisionError"):
        telemetry_query.run(spark, source, tmp_path)
    monkeypatch.undo()
    telemetry_query.run(spark, source, tmp_path)
    again = read(spark, tmp_path)
    assert rows(again.points) == rows(tables.points)
    assert rows(again.rejected) == rows(tables.rejected)


@pytest.mark.long
def test_new_checkpoint_does_not_replace_what_another_query_wrote(
    spark: SparkSession, source: Path, tables: telemetry.Tables, tmp_path: Path
) -> None:
    before = tables.points.count()
    (tmp_path / "tables").symlink_to(source.parent / "whole/tables")
    telemetry_query.run(spark, source, tmp_path)
    assert read(spark, tmp_path).points.count() == 2 * before


@pytest.mark.long
def test_the_program_of_the_page_runs(
    spark: SparkSession, counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    with EmbeddedCluster(topics={"client-metrics": 1}) as cluster:
        pushes = [
            ProducerRecord("client-metrics", each.value, key=each.key, headers=list(each.headers))
            for each in counted.records
        ]
        cluster.produce("client-metrics", pushes, partition=0)
        program = program.replace("localhost:9092", cluster.bootstrap_servers)
        exec(program.replace("/data", str(tmp_path)), {})
    tables = telemetry.read_tables(spark, str(tmp_path / "client-metrics"))
    assert tables.points.select("partition", "offset").distinct().count() == len(pushes)
    assert (tmp_path / "dashboard.png").exists()


def test_records_without_headers_are_refused_with_the_option(spark: SparkSession) -> None:
    records = spark.createDataFrame([], telemetry_query.COLUMNS).drop("headers")
    with pytest.raises(ConfigError, match=r"no column headers\. Set the source's option include"):
        telemetry.read_points(records)
    records = spark.createDataFrame([], telemetry_query.COLUMNS).withColumn("key", lit("text"))
    with pytest.raises(ConfigError, match="column key of the records has the type string"):
        telemetry.read_points(records)
    with pytest.raises(ConfigError, match="not a stream"):
        telemetry.write_tables(records, "unused")


@pytest.mark.long
def test_example_names_the_slow_the_silent_and_the_failing_client(tmp_path: Path) -> None:
    example = PAGE.parents[1] / "examples" / "telemetry_pipeline.py"
    command = [sys.executable, str(example), "--out", str(tmp_path), "--png", "fleet.png"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("slow: ledger-2, ", "silent: depot, ", "errors: shop-1, "):
        assert f"\n{line}" in done.stdout
    assert (tmp_path / "fleet.png").read_bytes().startswith(b"\x89PNG")
