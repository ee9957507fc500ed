"""A few queries with the pyspark on the path. `python spark_smoke.py FOLDER SERVERS TOPIC`.

The output is the version of pyspark and the number of rows that were compared.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
from spark_results import assert_same, result
from spark_session import create

__all__: list[str] = []


def main() -> None:
    folder, servers, topic = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = create(folder)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
    theirs, ours = (
        result(spark.read.format(name).options(**options).load())
        for name in ("kafka", "aiokclient")
    )
    assert_same(theirs, ours)
    reader = spark.read.format("aiokclient").options(**options).schema("value binary")
    assert reader.load().count() == theirs.num_rows
    sys.stdout.write(f"{pyspark.__version__} {ours.num_rows}\n")
    spark.stop()


if __name__ == "__main__":
    main()
