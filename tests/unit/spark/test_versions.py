"""The versions of Spark that are refused."""

from __future__ import annotations

import pytest

from aiokclient.errors import ConfigError
from aiokclient.spark.versions import require_spark


@pytest.mark.parametrize("version", ["4.2.1", "4.2.1.dev0", "4.3", "4.3.0", "4.10.0.dev1", "5.0.0"])
def test_newer_versions_are_accepted(version: str) -> None:
    require_spark(version)


@pytest.mark.parametrize("version", ["4.2.0", "4.1.1", "4.1.2.dev0", "4.0.0", "3.5.6"])
def test_older_versions_are_refused_with_the_reason(version: str) -> None:
    with pytest.raises(ConfigError) as caught:
        require_spark(version)
    assert str(caught.value) == (
        f"Spark {version} is too old for the format aiokclient. Sources in Python can limit the "
        "size of their batches since Spark 4.2, and 4.2.1 is the oldest supported version. "
        "Install pyspark 4.2.1 or later."
    )
