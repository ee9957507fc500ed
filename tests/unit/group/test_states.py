"""Tests of each row of the table of a member's lifecycle, and that the table is complete."""

import pytest

from aiokclient.errors import ERRORS_BY_CODE
from aiokclient.group.states import CODES, TABLE, MemberEffect, MemberEvent, MemberState

ROWS = """
out        resumed             joining
out        paused              out
joining    joined              syncing
joining    member id required  joining    take id, back off repeated
joining    rebalance           joining    back off
joining    unknown member      joining    forget id, lose, back off
joining    old generation      joining    forget generation, lose, back off
joining    fenced              fenced     forget id, lose
joining    paused              leaving
joining    withdrawn           preparing
joining    moved               joining
joining    fault               joining    back off
joining    refused             leaving    back off repeated
syncing    synced              beginning
syncing    unassigned          stable
syncing    rebalance           joining    back off repeated
syncing    unknown member      joining    forget id, lose, back off
syncing    old generation      joining    forget generation, lose, back off
syncing    fenced              fenced     forget id, lose
syncing    paused              leaving
syncing    moved               syncing
syncing    fault               joining    back off
syncing    refused             leaving    back off repeated
beginning  began               stable
beginning  unknown member      joining    forget id, lose, back off
beginning  old generation      joining    forget generation, lose, back off
beginning  fenced              fenced     forget id, lose
beginning  paused              leaving
stable     rebalance           preparing  back off repeated
stable     withdrawn           preparing
stable     renewed             beginning
stable     unknown member      joining    forget id, lose, back off
stable     old generation      joining    forget generation, lose, back off
stable     fenced              fenced     forget id, lose
stable     paused              leaving
preparing  prepared            joining
preparing  released            leaving
preparing  resyncing           syncing
preparing  late                joining    lose
preparing  unknown member      joining    forget id, lose, back off
preparing  old generation      joining    forget generation, lose, back off
preparing  fenced              fenced     forget id, lose
preparing  paused              leaving
leaving    left                out
"""


def rows() -> list[tuple[MemberState, MemberEvent, MemberState, tuple[MemberEffect, ...]]]:
    found = []
    for line in ROWS.strip().splitlines():
        state, event, after, effects = (
            line[:11].strip(),
            line[11:31].strip(),
            line[31:42].strip(),
            line[42:].strip(),
        )
        names = [name.strip().upper().replace(" ", "_") for name in effects.split(",") if name]
        found.append(
            (
                MemberState(state),
                MemberEvent(event),
                MemberState(after),
                tuple(MemberEffect[name] for name in names),
            )
        )
    return found


@pytest.mark.parametrize(
    ("state", "event", "after", "effects"), rows(), ids=lambda v: getattr(v, "value", None)
)
def test_each_row_of_the_table_has_the_expected_state_and_effects(
    state: MemberState, event: MemberEvent, after: MemberState, effects: tuple[MemberEffect, ...]
) -> None:
    row = TABLE[state, event]
    assert row.state is after
    assert set(row.effects) == set(effects)


def test_the_table_has_no_other_rows() -> None:
    assert set(TABLE) == {(state, event) for state, event, _, _ in rows()}


def test_effects_are_done_in_their_order() -> None:
    order = list(MemberEffect)
    for row in TABLE.values():
        assert list(row.effects) == sorted(row.effects, key=order.index)


def test_every_state_of_a_member_can_be_reached_and_left() -> None:
    reached = {MemberState.OUT}
    while True:
        more = {row.state for (state, _), row in TABLE.items() if state in reached}
        if more <= reached:
            break
        reached |= more
    assert reached == set(MemberState)
    assert {state for state, _ in TABLE} == set(MemberState) - {MemberState.FENCED}


def test_a_member_can_be_paused_in_every_state_in_which_it_is_one() -> None:
    for state in set(MemberState) - {MemberState.OUT, MemberState.LEAVING, MemberState.FENCED}:
        assert TABLE[state, MemberEvent.PAUSED].state is MemberState.LEAVING


def test_handler_is_notified_when_a_member_loses_its_id_or_generation() -> None:
    """Each row of the table that drops the id or generation notifies the handler of the loss."""
    for row in TABLE.values():
        if {MemberEffect.FORGET_ID, MemberEffect.FORGET_GENERATION} & set(row.effects):
            assert MemberEffect.LOSE in row.effects


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("MEMBER_ID_REQUIRED", MemberEvent.MEMBER_ID_REQUIRED),
        ("REBALANCE_IN_PROGRESS", MemberEvent.REBALANCE),
        ("UNKNOWN_MEMBER_ID", MemberEvent.UNKNOWN_MEMBER),
        ("ILLEGAL_GENERATION", MemberEvent.OLD_GENERATION),
        ("FENCED_INSTANCE_ID", MemberEvent.FENCED),
    ],
)
def test_error_codes_with_a_meaning_for_members_are_events(name: str, event: MemberEvent) -> None:
    code = next(code for code, error in ERRORS_BY_CODE.items() if error.name == name)
    assert CODES[code] is event


def test_no_other_code_is_an_event() -> None:
    """For other error codes, such as a coordinator that loads or moved, the policy decides."""
    assert len(CODES) == 5
