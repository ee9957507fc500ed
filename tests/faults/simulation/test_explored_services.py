"""Six services with one known fault each, and six without, as users would explore them.

`make explore` runs all seeds: AIOKCLIENT_EXPLORE_SEEDS for each mended service, from
AIOKCLIENT_EXPLORE_FIRST on, and the faulty ones from the first seed on. Otherwise each fault is
looked for from a seed that is known to find it.
"""

import os
import sys
import time

import explored
import pytest

from aiokclient.testing import CounterexampleError, explore

WANTED = int(os.environ.get("AIOKCLIENT_EXPLORE_SEEDS") or 0)
FIRST = int(os.environ.get("AIOKCLIENT_EXPLORE_FIRST") or 0)
MOST_FAULTS = 5
MOST_SEEDS = 1000
KNOWN = {"a retry without idempotence": 14}
"""Seeds by which faults are found, of the services that are tried each time. If faults are drawn in
another way, others are."""
ROWS = [row for row in explored.SERVICES if WANTED or row.fault in KNOWN]


def check_row(row: explored.Explored) -> explored.Explored:
    """Skip a row that needs FastAPI, where it is not installed."""
    if row.fault in explored.NEED_FASTAPI:
        pytest.importorskip("fastapi", reason="FastAPI is installed on the newest Python only")
    return row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fault)
def test_a_known_fault_is_found_shrunk_and_printed(row: explored.Explored) -> None:
    check_row(row)
    first = 0 if WANTED else KNOWN[row.fault]
    began = time.process_time()
    with pytest.raises(CounterexampleError) as raised:
        explore(row.faulty, seeds=MOST_SEEDS, first_seed=first, **row.explore_options())
    error = raised.value
    spent = time.process_time() - began
    sys.stdout.write(
        f"\n{row.fault}: seed {error.seed}, {error.invariant}, {error.faults}, {spent:.1f} CPU s\n"
    )
    assert error.invariant in row.found_by
    assert len(error.faults) <= MOST_FAULTS
    names: dict[str, object] = {}
    exec(error.test, names)
    with pytest.raises(CounterexampleError):
        names[f"test_seed_{error.seed}"]()  # type: ignore[operator]
    names[row.faulty.__name__] = row.mended
    names[f"test_seed_{error.seed}"]()  # type: ignore[operator]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fault)
def test_a_mended_service_gives_no_false_alarm(row: explored.Explored) -> None:
    check_row(row)
    seeds = WANTED or 2
    began = time.process_time()
    report = explore(row.mended, seeds=seeds, first_seed=FIRST, **row.explore_options())
    spent = time.process_time() - began
    sys.stdout.write(f"\n{row.fault}, mended: {spent / seeds:.3f} CPU s for a seed\n{report}\n")
    assert report.seeds == seeds
    assert report.coverage
