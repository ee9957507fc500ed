"""Errors after which a transaction has to be aborted and nothing more."""

from __future__ import annotations

from aiokclient.errors.base import AbortableError

__all__ = ["TransactionAbortableError"]


class TransactionAbortableError(AbortableError, code=120, name="TRANSACTION_ABORTABLE"):
    what = "The broker cannot go on with this transaction."
    hint = "Abort it and run it again; the producer itself stays usable (KIP-890)."
