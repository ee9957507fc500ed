"""A soak: producers, groups, and transactions in one event loop, amid seeded faults, for minutes.

    schedule.py       the faults, their times, and their targets, which the seed determines
    entries.py        what is recorded of a run
    checks.py         the checks of what was recorded, against the promises A to L
    record_checks.py  records of idempotent producers: A, B, C
    group_checks.py   the members of a group: F, G
    transaction_checks.py    transactions: K
    sabotage.py       deliberate defects of the recording, which the checks must find
    workload.py, members.py    the clients
    measures.py       tasks, sockets, threads, memory, blocked loops, logs: H, I, J, L
    site.py, faults.py, run.py   Kafka with TLS and SCRAM, the faults, and a whole run

``PYTHONPATH=tests/harness python -m soak --minutes 10 --seed 7`` runs one; `make soak` does that.
"""
