"""Scenarios about transactions and their producers."""

from admin_parity.scenario import Scenario, ended_transaction, open_transaction, records, topic

TIMES = ("producerId", "coordinatorId", "transactionStartTimeMs", "lastTimestamp")

REPEATED = "Java says only that the time is up; here is the error that was repeated until then"

ROWS = (
    Scenario(
        "listTransactions",
        "one open, one ended",
        {},
        (topic("$t", 2), open_transaction("$x", "$t"), ended_transaction("$y", "$t")),
        True,
    ),
    Scenario(
        "listTransactions",
        "of a state and a pattern",
        {"states": ["Ongoing"], "pattern": "$.*"},
        (topic("$t"), open_transaction("$x", "$t")),
        True,
    ),
    Scenario(
        "listTransactions",
        "of a producer",
        {"producerIds": ["$=producer"], "olderThanMs": 0},
        (topic("$t"), open_transaction("$x", "$t")),
        True,
    ),
    Scenario("listTransactions", "with a wrong pattern", {"pattern": "("}, (), True),
    Scenario(
        "listTransactions",
        "without permission",
        {},
        (topic("$t"), open_transaction("$x", "$t")),
        True,
        client="alice",
    ),
    Scenario(
        "describeTransactions",
        "one open, one ended, one unknown",
        {"ids": ["$x", "$y", "$absent"]},
        (topic("$t", 2), open_transaction("$x", "$t"), ended_transaction("$y", "$t")),
        True,
    ),
    Scenario(
        "describeTransactions",
        "without permission",
        {"ids": ["$x"]},
        (topic("$t"), open_transaction("$x", "$t")),
        True,
        client="alice",
    ),
    Scenario(
        "describeProducers",
        "of an open transaction, and of a partition that does not exist",
        {"partitions": [["$t", 0], ["$u", 0], ["$u", 7]]},
        (
            topic("$t"),
            topic("$u"),
            records("$u", 2),
            ended_transaction("$y", "$t"),
            open_transaction("$x", "$t"),
        ),
        True,
        client="hasty",
        differs=REPEATED,
    ),
    Scenario(
        "describeProducers",
        "of a broker",
        {"partitions": [["$t", 0]], "broker": 1},
        (topic("$t", 1), records("$t", 1)),
        True,
        on=("kafka",),
    ),
    Scenario(
        "describeProducers",
        "without permission",
        {"partitions": [["$t", 0]]},
        (topic("$t"),),
        True,
        client="alice",
    ),
    Scenario(
        "abortTransaction",
        "an open one",
        {
            "partition": ["$t", 0],
            "producerId": "$=producer",
            "epoch": "$=epoch",
            "coordinatorEpoch": 0,
        },
        (topic("$t"), open_transaction("$x", "$t")),
        then=("describeProducers", {"partitions": [["$t", 0]]}),
        varies=TIMES,
    ),
    Scenario(
        "abortTransaction",
        "of an older epoch",
        {"partition": ["$t", 0], "producerId": "$=producer", "epoch": 0, "coordinatorEpoch": 0},
        # The second one fences the first one, whose epoch is 0.
        (topic("$t"), open_transaction("$x", "$t"), open_transaction("$x", "$t")),
    ),
    Scenario(
        "abortTransaction",
        "of an unknown partition",
        {"partition": ["$t", 9], "producerId": 1, "epoch": 0, "coordinatorEpoch": 0},
        (topic("$t"),),
        client="hasty",
        differs=REPEATED,
    ),
    Scenario(
        "abortTransaction",
        "without permission",
        {"partition": ["$t", 0], "producerId": 1, "epoch": 0, "coordinatorEpoch": 0},
        (topic("$t"),),
        client="alice",
    ),
    Scenario(
        "fenceProducers",
        "one with a transaction, one new",
        {"ids": ["$x", "$new"]},
        (topic("$t"), open_transaction("$x", "$t")),
        varies=TIMES,
        then=("describeTransactions", {"ids": ["$x", "$new"]}),
    ),
    Scenario("fenceProducers", "without permission", {"ids": ["$x"]}, client="alice"),
    Scenario(
        "forceTerminateTransaction",
        "an open one",
        {"id": "$x"},
        (topic("$t"), open_transaction("$x", "$t")),
        varies=TIMES,
        then=("describeTransactions", {"ids": ["$x"]}),
    ),
    Scenario("forceTerminateTransaction", "without permission", {"id": "$x"}, client="alice"),
)
