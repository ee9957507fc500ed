"""The ledger detects every violation that it must detect."""

from dataclasses import dataclass

import pytest
from ledger import BrokenInvariantError, Ledger, Payload, pack


@dataclass
class Read:
    topic: str
    partition: int
    offset: int
    value: bytes


def account(*offsets: int) -> tuple[Ledger, list[Payload]]:
    """Return a ledger with three acknowledged payloads, and the payloads.

    One payload was read at each of ``offsets``, beginning with the first payload.
    """
    ledger = Ledger()
    payloads = [ledger.payload(1, "t", 0) for _ in range(3)]
    for offset, payload in enumerate(payloads):
        ledger.acknowledge(payload, offset)
    for number, offset in enumerate(offsets):
        ledger.consume(Read("t", 0, offset, pack(payloads[number], 60)))
    return ledger, payloads


def test_a_complete_ledger_passes() -> None:
    ledger, _ = account(0, 1, 2)
    ledger.check()
    assert ledger.summary() == "3 sent, 3 acknowledged, 0 failed {}, 3 read"


def test_a_lost_record_is_detected() -> None:
    ledger, _ = account(0, 1)
    with pytest.raises(BrokenInvariantError, match="A: acknowledged and lost: 1"):
        ledger.check()


def test_a_wrong_offset_is_detected() -> None:
    ledger, _ = account(0, 1, 3)
    with pytest.raises(BrokenInvariantError, match="A: not at the offset"):
        ledger.check()


def test_a_repeated_record_is_detected() -> None:
    ledger, payloads = account(0, 1, 2)
    ledger.consume(Read("t", 0, 3, pack(payloads[1])))
    with pytest.raises(BrokenInvariantError, match="A: there more than once"):
        ledger.check()
    ledger.exactly_once = False
    ledger.check()


def test_a_wrong_order_is_detected() -> None:
    ledger = Ledger()
    payloads = [ledger.payload(1, "t", 0) for _ in range(2)]
    for offset, payload in enumerate(reversed(payloads)):
        ledger.acknowledge(payload, offset)
        ledger.consume(Read("t", 0, offset, pack(payload)))
    with pytest.raises(BrokenInvariantError, match="B: out of order at 1"):
        ledger.check()


@pytest.mark.parametrize(
    ("read", "complaint"),
    [
        (Read("u", 0, 0, pack(Payload("t", 0, 1, 0))), "C: .* was found in"),
        (Read("t", 1, 0, pack(Payload("t", 0, 1, 0))), "C: .* was found in"),
        (
            Read("t", 0, 0, pack(Payload("t", 0, 1, 0), 50)[:-5] + b"12345"),
            "C: A payload of .* is corrupt",
        ),
        (Read("t", 0, 0, b""), "C: A payload of 0 bytes is corrupt"),
    ],
)
def test_corrupt_and_misplaced_records_are_detected(read: Read, complaint: str) -> None:
    with pytest.raises(BrokenInvariantError, match=complaint):
        Ledger().consume(read)


def test_a_send_without_an_outcome_is_detected() -> None:
    ledger = Ledger()
    ledger.payload(1, "t", 0)
    with pytest.raises(BrokenInvariantError, match="without any outcome: 1"):
        ledger.check()
    ledger.check(settled=False)
