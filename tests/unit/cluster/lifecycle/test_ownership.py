"""Tests of references that keep an object alive only while it is being closed."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from aiokclient.cluster.lifecycle.ownership import Anchor, Weakly, for_background, retrieve
from aiokclient.config.client import ClientConfig
from aiokclient.config.producer import ProducerConfig


class Thing:
    """An object that can be referred to weakly."""


class Slotted:
    __slots__ = ("name",)


class Holder:
    thing = Weakly()


def test_anchor_keeps_an_object_alive_while_it_holds_it() -> None:
    thing = Thing()
    anchor, seen = Anchor(thing), weakref.ref(thing)
    assert anchor.get() is thing
    anchor.hold_object(thing)
    del thing
    gc.collect()
    held = anchor.get()
    assert held is not None
    assert held is seen()
    anchor.release_object(held)
    del held
    gc.collect()
    assert anchor.get() is None


def test_anchor_holds_an_object_that_has_no_weak_references() -> None:
    anchor = Anchor(Slotted())
    gc.collect()
    assert isinstance(anchor.get(), Slotted)


def test_weak_attribute_is_none_when_its_object_is_gone() -> None:
    holder, thing = Holder(), Thing()
    assert holder.thing is None
    holder.thing = thing
    assert holder.thing is thing
    holder.thing = None
    assert holder.thing is None
    holder.thing = thing
    del thing
    gc.collect()
    assert holder.thing is None


def test_options_for_the_background_have_no_functions_of_the_application() -> None:
    config = ProducerConfig(
        bootstrap_servers="localhost:9092", value_serializer=repr, partitioner=max, linger_ms=7
    )
    bare = for_background(config)
    assert (bare.value_serializer, bare.partitioner, bare.linger_ms) == (None, None, 7)
    assert config.value_serializer is repr, "the options of the application stay as they are"
    client = ClientConfig(bootstrap_servers="localhost:9092")
    assert for_background(client) == client


@pytest.mark.parametrize("end", ["error", "cancellation", "result"])
async def test_retrieve_keeps_asyncio_silent_about_a_task(end: str) -> None:
    loop, reported = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def work() -> None:
        if end == "error":
            raise ZeroDivisionError
        if end == "cancellation":
            raise asyncio.CancelledError

    task = asyncio.ensure_future(work())
    task.add_done_callback(retrieve)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    del task
    gc.collect()
    assert reported == []
