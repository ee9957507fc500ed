"""Errors after which it suffices to abort the transaction."""

from __future__ import annotations

from aiokclient.errors.base import AbortableError

__all__ = ["TransactionAbortableError"]


class TransactionAbortableError(AbortableError, code=120, name="TRANSACTION_ABORTABLE"):
    what = "The transaction cannot be continued."
    hint = "Abort the transaction and run it again. The producer stays usable (KIP-890)."
