"""The jars of Spark that PySpark lacks: its own Kafka connector, for comparisons, and Avro."""

from pathlib import Path

from .distribution import fetch_jars
from .files import CACHE, prepared

__all__ = ["connector_jars"]

VERSION = "4.2.0"
"""The newest published version of these jars."""
TOKEN_PROVIDER = "4.0.0"
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId>
<version>{version}</version>{exclusions}</dependency>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-avro_2.13</artifactId>
<version>{version}</version>{exclusions}</dependency>
<dependency><groupId>org.apache.spark</groupId>
<artifactId>spark-token-provider-kafka-0-10_2.13</artifactId>
<version>{token_provider}</version>{exclusions}</dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>
<version>3.9.1</version>{exclusions}</dependency>
<dependency><groupId>org.apache.commons</groupId><artifactId>commons-pool2</artifactId>
<version>2.12.0</version></dependency>
</dependencies></project>
"""
# All other jars are in Spark's installation.
EXCLUSIONS = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def connector_jars() -> list[Path]:
    """Return the jars, which Maven downloads at the first use."""
    folder = prepared(CACHE / f"spark-jars-{VERSION}" / "jars", _fetch)
    return sorted(folder.glob("*.jar"))


def _fetch(target: Path) -> None:
    pom = target.parent / "pom.xml"
    pom.write_text(
        POM.format(version=VERSION, token_provider=TOKEN_PROVIDER, exclusions=EXCLUSIONS)
    )
    fetch_jars("Spark's Kafka connector and Avro", pom, target)
