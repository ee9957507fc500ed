"""The programs of the page about Spark run."""

import re
from pathlib import Path

from pyspark.sql import SparkSession

from aiokclient.testing import EmbeddedCluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
PATHS: tuple[str, ...] = ("checkpoints/", "output/")


def test_the_programs_of_the_page_about_spark_run(spark: SparkSession, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert blocks
    names: dict[str, object] = {"spark": spark}
    with EmbeddedCluster(brokers=1, topics={"orders": 2}) as cluster:
        cluster.produce("orders", [(b"k", b"tea"), (b"k", b"coffee")])
        for block in blocks:
            code = block.replace("localhost:9092", cluster.bootstrap_servers)
            for path in PATHS:
                code = code.replace(f'"{path}', f'"{tmp_path}/{path}')
            exec(compile(code, str(PAGE), "exec"), names)
        written = spark.read.parquet(str(tmp_path / "output" / "orders")).collect()
    assert sorted(row.value for row in written) == ["coffee", "tea"]
