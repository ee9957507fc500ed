"""Tests that the page about Java's client has each method of Java's `Admin`, and a call for it."""

from __future__ import annotations

import inspect
import re
import zipfile
from pathlib import Path

import pytest
from class_file import method_names

from aiokclient import Admin
from aiokclient.admin.kafka_calls import KafkaCalls
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "migration" / "java.md"
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) ?\|$", re.M)
ROWS = {name: (call, note) for name, call, note in ROW.findall(PAGE.read_text())}


def test_the_page_has_each_method_of_java(kafka_jars: list[Path]) -> None:
    (jar,) = (path for path in kafka_jars if path.name.startswith("kafka-clients-"))
    with zipfile.ZipFile(jar) as archive:
        names = method_names(archive.read("org/apache/kafka/clients/admin/Admin.class"))
    assert len(names) > 60
    assert set(ROWS) == names


@pytest.mark.parametrize("name", ROWS)
def test_each_method_of_java_has_a_call_or_a_reason(name: str) -> None:
    call, note = ROWS[name]
    if call == "none":
        assert note
    elif name == "create":
        assert call == "`async with Admin(...)`"
    else:
        method = getattr(Admin, call.strip("`"))
        assert inspect.iscoroutinefunction(method) or call in ("`metrics`", *PLAIN)


def test_kafka_calls_has_the_calls_of_java_and_no_others() -> None:
    named = {call.strip("`") for call, _ in ROWS.values()}
    not_calls = {"none", "async with Admin(...)", *dir(Lifecycle)}
    assert {name for name in vars(KafkaCalls) if not name.startswith("_")} == named - not_calls


PLAIN = ("`register_metric`", "`unregister_metric`")


def test_calls_that_change_something_say_what_a_cancellation_leaves() -> None:
    """Each call of the page whose name is that of a change has a sentence on it."""
    changes = re.compile(r"(create|delete|alter|update|add|remove|unregister|elect|expire|renew)_")
    for call, _ in ROWS.values():
        name = call.strip("`")
        if changes.match(name) and name not in ("unregister_metric", "create"):
            text = " ".join((inspect.getdoc(getattr(Admin, name)) or "").split())
            assert "cancellation" in text, name
