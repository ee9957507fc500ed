"""The data source as Spark pickles it."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyspark")

from aiokclient.spark import KafkaDataSource


def test_a_pickle_names_the_package_that_exports_the_data_source() -> None:
    assert KafkaDataSource.__module__ == "aiokclient.spark"
    assert pickle.loads(pickle.dumps(KafkaDataSource)) is KafkaDataSource
