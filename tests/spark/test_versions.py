"""The versions of Spark: the newest, the oldest that is supported, and one that is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from kafka_harness import KafkaCluster
from kafka_harness.files import CACHE, prepared
from spark_topics import EVERYTHING, fill

from aiokclient.errors import ConfigError
from aiokclient.spark import KafkaDataSource

ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT / "tests" / "harness"
OLDEST = "4.2.1"


def installed(version: str) -> Path:
    """Return a folder with this version of pyspark, which pip downloads at the first use."""

    def install(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
        subprocess.run([*pip, f"pyspark=={version}"], check=True)

    return prepared(CACHE / f"pyspark-{version}" / "packages", install)


@pytest.mark.long
@pytest.mark.parametrize("version", [pyspark.__version__, OLDEST])
def test_rows_equal_the_connectors_in_this_version(
    spark_kafka: KafkaCluster, tmp_path: Path, version: str
) -> None:
    path, environment = [str(ROOT), str(HARNESS)], dict(os.environ)
    if version != pyspark.__version__:
        packages = installed(version)
        path.insert(0, str(packages))
        environment["SPARK_HOME"] = str(packages / "pyspark")
    environment["PYTHONPATH"] = os.pathsep.join(path)
    topic = spark_kafka.create_topic(None, 4, configs={"max.message.bytes": 4 << 20})
    fill(spark_kafka.bootstrap, topic, EVERYTHING)
    program = [sys.executable, str(HARNESS / "spark_smoke.py"), str(tmp_path)]
    done = subprocess.run(
        [*program, spark_kafka.bootstrap, topic],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-2:] == [version, "262"]


def test_spark_4_1_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    with pytest.raises(ConfigError) as caught:
        KafkaDataSource({})
    assert str(caught.value).startswith("Spark 4.1.1 is too old for the format aiokclient")
