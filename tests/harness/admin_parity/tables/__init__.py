"""The table of all scenarios: for each method of Java's Admin at least a success and a refusal."""

from admin_parity.tables import cluster, groups, security, topics, transactions

SCENARIOS = (
    *topics.ROWS,
    *cluster.ROWS,
    *groups.ROWS,
    *transactions.ROWS,
    *security.ROWS,
)
SAMPLE = (
    "createTopics, made, and refused for each reason",
    "deleteTopics, by name, one of them unknown",
    "createPartitions, made, and refused for each reason",
    "deleteRecords, some of a partition, all of one, and beyond the end",
    "listOffsets, each kind",
    "alterPartitionReassignments, for each reason to refuse",
    "incrementalAlterConfigs, set, removed, added to, and refused for each reason",
    "alterConsumerGroupOffsets, set, with metadata, beyond the end, and of an unknown partition",
    "alterClientQuotas, set, removed, and refused",
    "createAcls, made, and refused",
)
"""Scenarios of which the results of Java are recorded."""
