"""Transactions that no coordinator will end, on brokers that do not verify them (KIP-890)."""

from __future__ import annotations

import time

from raw_transactions import RawTransaction

from aiokclient import Admin, Client, ConfigResource, TopicPartition

OPTION = "transaction.partition.verification.enable"
AGE_MS = 20 * 60_000
"""The age of a hanging transaction: more than the longest timeout of transactions."""


async def switch_verification(bootstrap: str, is_on: bool) -> None:
    """Let all brokers verify transactions, or accept what belongs to no transaction."""
    everywhere = ConfigResource.broker()
    value = None if is_on else "false"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (await admin.alter_configs({everywhere: {OPTION: value}})).raise_for_errors()
        nodes = (await admin.describe_cluster()).brokers
        brokers = [ConfigResource.broker(each.node_id) for each in nodes]
        shown: set[str | None] = set()
        while shown != {str(is_on).lower()}:  # A broker applies the config a moment later.
            described = (await admin.describe_configs(brokers)).raise_for_errors()
            shown = {entries[OPTION].value for entries in described.values()}


async def hang_transaction(
    client: Client, transactional_id: str, tp: TopicPartition
) -> RawTransaction:
    """Write an old record in a transaction that its coordinator does not learn of."""
    transaction = RawTransaction(client, transactional_id)
    await transaction.begin()
    old = int(time.time() * 1000) - AGE_MS
    # Older versions do not add the partition to the transaction.
    await transaction.produce(tp, b"hangs", timestamp=old, version=11)
    return transaction
