"""The programs in the documentation of Spark run."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from aiokclient import Consumer
from aiokclient.testing import EmbeddedCluster

ROOT = Path(__file__).resolve().parents[2]
# The page about client metrics needs a topic with pushes: test_telemetry.py runs its program.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("spark*.md"))]
ADDRESS = "localhost:9092"
REGISTRY = "http://localhost:8081"
PARCEL = {
    "type": "record",
    "name": "Parcel",
    "fields": [{"name": "number", "type": "int"}, {"name": "goods", "type": "string"}],
}


def programs(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the heading and code of each program. Omit those of the README that need no Spark."""
    heading = ""
    found = re.finditer(r"^#+ ([^\n]+)$|^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
    for match in found:
        heading = match[1] or heading
        if match[2] is not None and (page.name != "README.md" or "Spark" in heading):
            yield heading, match[2]


class SchemaHandler(BaseHTTPRequestHandler):
    """A registry with one schema, whose id is 1."""

    def do_GET(self) -> None:
        known = self.path == "/schemas/ids/1"
        content = {"schema": json.dumps(PARCEL)} if known else {"error_code": 40403}
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *values: object) -> None:
        """Log nothing."""


@contextmanager
def serve_schema() -> Iterator[str]:
    """Serve the schema of a page's program in a thread, and yield the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SchemaHandler) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize("page", [page for page in PAGES if list(programs(page))], ids=str)
def test_the_spark_programs_of_a_page_run(page: Path, spark: Any, tmp_path: Path) -> None:
    topics = {"orders": 3, "invoices": 3, "totals": 1, "client-metrics": 1, "parcels": 1}
    with EmbeddedCluster(brokers=1, topics=topics) as cluster, serve_schema() as registry:
        for partition in range(3):
            cluster.produce("orders", [b"tea", b"coffee"], partition)
        names: dict[str, Any] = {"__name__": "__docs__", "spark": spark}
        for heading, code in programs(page):
            code = code.replace(ADDRESS, cluster.bootstrap_servers).replace("/tmp/", f"{tmp_path}/")
            code = code.replace(REGISTRY, registry)
            exec(compile(code, f"{page.name}: {heading}", "exec"), names)
            for query in spark.streams.active:
                query.processAllAvailable()
                query.stop()
        if page.name == "spark-schemas.md":
            rows = names["decode"](names["records"], names["schema"]).collect()
            assert sorted((row.number, row.goods) for row in rows) == [(1, "tea"), (2, "coffee")]
        if page.name == "README.md":
            assert spark.read.parquet(str(tmp_path / "orders")).count() == 6
            values = asyncio.run(committed(cluster.bootstrap_servers, "invoices"))
            assert sorted(values) == [b"for coffee"] * 3 + [b"for tea"] * 3


async def committed(servers: str, topic: str) -> list[bytes | None]:
    options: Any = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with Consumer(topic, bootstrap_servers=servers, **options) as consumer:
        return [record.value async for record in consumer.until_end()]


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*spark*.md"))])
def test_programs_that_start_spark_set_the_python_of_its_processes(page: Path) -> None:
    # Otherwise, Spark runs the python3 on PATH, which may not have the package.
    setting = 'os.environ["PYSPARK_PYTHON"] = sys.executable'
    for heading, code in programs(page):
        before, start, _ = code.partition("getOrCreate()")
        assert not start or setting in before, heading
    if page.name in ("README.md", "spark.md"):
        assert '`.mode("append")`' in page.read_text()
