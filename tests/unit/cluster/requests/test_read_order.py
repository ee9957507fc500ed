"""Tests of the order of reads and transactions in one thread."""

from __future__ import annotations

import gc
import threading

from aiokclient.cluster.requests.read_order import ReadOrder, read_order


class Reader:
    def __init__(self) -> None:
        self.interruptions = 0

    def interrupt_iteration(self) -> None:
        self.interruptions += 1


def test_each_transaction_has_the_next_number_and_interrupts_all_readers() -> None:
    order = ReadOrder()
    one, other = Reader(), Reader()
    assert order.transactions == 0
    order.add_reader(one)
    assert order.begin_transaction() == 1
    order.add_reader(other)
    assert order.begin_transaction() == 2
    assert order.transactions == 2
    assert (one.interruptions, other.interruptions) == (2, 1)


def test_reader_is_not_kept_alive() -> None:
    order, reader = ReadOrder(), Reader()
    order.add_reader(reader)
    del reader
    gc.collect()
    assert order.begin_transaction() == 1


def test_each_thread_has_its_own_order() -> None:
    found: list[ReadOrder] = []
    thread = threading.Thread(target=lambda: found.append(read_order()))
    thread.start()
    thread.join()
    assert read_order() is read_order()
    assert found[0] is not read_order()
