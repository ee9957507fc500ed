"""The requests that end a transaction for good: they are repeated until the coordinator decides.

An abort is not given up. It is repeated after every error that only an abort could correct, and so
is the request for the epoch of the next transaction. A commit that was not answered is found out by
an abort: if the transaction is committed, the coordinator refuses the abort, and accepts a
repetition of the commit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial

from aiokclient.errors import InvalidTxnStateError, KafkaError
from aiokclient.policy import Decision, Scope, classify
from aiokclient.producer.transaction.requests import Patience, TransactionRequests
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    ProducerIdentity,
    TransactionOutcome,
)

__all__ = ["EndRequests"]

RETRY_ABORT_S = 0.1
"""Seconds until an abort is sent again after an error that only an abort could correct."""


class EndRequests:
    """The requests of one producer that are repeated until the coordinator decides."""

    def __init__(self, requests: TransactionRequests) -> None:
        self._requests = requests

    async def renew_epoch(self, identity: ProducerIdentity) -> ProducerIdentity:
        """Return the identity with the next epoch."""
        return await self.until_ended(partial(self._requests.initialize, identity, math.inf))

    async def send_abort(self, current: CurrentTransaction) -> ProducerIdentity:
        """Send the abort until the coordinator accepts or refuses it."""
        try:
            return await self.until_ended(partial(self._send_end, current, False))
        except KafkaError as error:
            # No transaction is open. So an abort has succeeded, unless the coordinator is known to
            # have a part of the transaction, or a commit was sent.
            not_open = error.code == InvalidTxnStateError.code
            if not_open and not (current.added or current.undecided):
                return current.identity
            raise

    async def _send_end(
        self, current: CurrentTransaction, commit: bool, patience: Patience
    ) -> ProducerIdentity:
        return await self._requests.end(
            current, current.identity, commit=commit, timeout=math.inf, patience=patience
        )

    async def until_ended(
        self, send: Callable[[Patience], Awaitable[ProducerIdentity]]
    ) -> ProducerIdentity:
        """Send a request of an abort. Repeat it after an error that only an abort could correct."""
        patience = self._requests.patience()
        while True:
            try:
                return await send(patience)
            except KafkaError as error:
                if classify(error, Scope.TRANSACTION) is not Decision.ABORT:
                    raise
                patience.met(error)
            await asyncio.sleep(RETRY_ABORT_S)

    async def find_outcome(
        self, current: CurrentTransaction
    ) -> tuple[TransactionOutcome, ProducerIdentity]:
        """Abort a transaction whose commit was not answered, or find out that it is committed.

        Raises the coordinator's error if the outcome stays unknown.
        """
        try:
            return TransactionOutcome.ABORTED, await self.send_abort(current)
        except KafkaError as error:
            if classify(error, Scope.TRANSACTION) is not Decision.RECOVER:
                raise
        following = await self.until_ended(partial(self._send_end, current, True))
        return TransactionOutcome.COMMITTED, following
