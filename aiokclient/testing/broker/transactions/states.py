"""The states of a transactional id, and what each request does in each of them.

A transactional id is Empty until a partition is added to a transaction, which makes it Ongoing. The
coordinator ends a transaction in two steps. First it stores the outcome (PrepareCommit or
PrepareAbort), which is final from then on. Then it writes a marker to each partition of the
transaction, and when all of them are written, the transaction is complete (CompleteCommit or
CompleteAbort). Between the two steps, every request is answered with CONCURRENT_TRANSACTIONS. The
next added partition begins the next transaction. An id that is not used for a long time expires
(Dead) and is forgotten.

At level 2 of transaction.version (EndTxn version 5, KIP-890), each end of a transaction increases
the epoch. So an EndTxn with the epoch before the increase repeats the last end. An EndTxn with the
current epoch, if no partition was added since, is about an empty transaction. The two are different
events. An empty transaction may be aborted, which increases the epoch again. At lower levels, the
epoch does not distinguish the two, so every EndTxn with the same outcome counts as a repetition.

The coordinator itself aborts a transaction that takes longer than its timeout, or whose
transactional id is initialized again (REVOKE).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from aiokclient.testing.broker.codes import Code


class CoordinatorTransactionState(Enum):
    """The states of a transactional id, under Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


class CoordinatorTransactionEvent(Enum):
    """The events of a transactional id."""

    INIT = "InitProducerId"
    ADD = "a partition or a group is added"
    COMMIT = "EndTxn up to version 4 commits"
    ABORT = "EndTxn up to version 4 aborts"
    COMMIT_BUMPED = "EndTxn version 5 commits, in the current epoch"
    ABORT_BUMPED = "EndTxn version 5 aborts, in the current epoch"
    COMMIT_REPEATED = "EndTxn version 5 commits, in the epoch before the last end"
    ABORT_REPEATED = "EndTxn version 5 aborts, in the epoch before the last end"
    REVOKE = "the coordinator aborts"
    MARKED = "the last marker is written"
    EXPIRE = "the id was not used for long"


_S, _E = CoordinatorTransactionState, CoordinatorTransactionEvent
Next: TypeAlias = CoordinatorTransactionState | Code
"""The next state, or the error code of the response. With an error, the state does not change."""

_INVALID = Code.INVALID_TXN_STATE
_FENCED = Code.PRODUCER_FENCED
_CONCURRENT = Code.CONCURRENT_TRANSACTIONS

_ENDING: Mapping[CoordinatorTransactionEvent, Next] = {
    _E.INIT: _CONCURRENT,
    _E.ADD: _CONCURRENT,
    _E.COMMIT: _CONCURRENT,
    _E.ABORT: _CONCURRENT,
    _E.COMMIT_BUMPED: _CONCURRENT,
    _E.ABORT_BUMPED: _CONCURRENT,
    _E.COMMIT_REPEATED: _CONCURRENT,
    _E.ABORT_REPEATED: _CONCURRENT,
    _E.REVOKE: _CONCURRENT,
}

TABLE: Mapping[CoordinatorTransactionState, Mapping[CoordinatorTransactionEvent, Next]] = {
    _S.EMPTY: {
        _E.INIT: _S.EMPTY,
        _E.ADD: _S.ONGOING,
        _E.COMMIT: _INVALID,
        _E.ABORT: _INVALID,
        _E.COMMIT_BUMPED: _INVALID,
        _E.ABORT_BUMPED: _S.PREPARE_ABORT,
        _E.COMMIT_REPEATED: _FENCED,
        _E.ABORT_REPEATED: _FENCED,
        _E.EXPIRE: _S.DEAD,
    },
    _S.ONGOING: {
        # The coordinator aborts the transaction in addition to this response.
        _E.INIT: _CONCURRENT,
        _E.ADD: _S.ONGOING,
        _E.COMMIT: _S.PREPARE_COMMIT,
        _E.ABORT: _S.PREPARE_ABORT,
        _E.COMMIT_BUMPED: _S.PREPARE_COMMIT,
        _E.ABORT_BUMPED: _S.PREPARE_ABORT,
        _E.COMMIT_REPEATED: _FENCED,
        _E.ABORT_REPEATED: _FENCED,
        _E.REVOKE: _S.PREPARE_ABORT,
    },
    _S.PREPARE_COMMIT: {**_ENDING, _E.MARKED: _S.COMPLETE_COMMIT},
    _S.PREPARE_ABORT: {**_ENDING, _E.MARKED: _S.COMPLETE_ABORT},
    _S.COMPLETE_COMMIT: {
        _E.INIT: _S.EMPTY,
        _E.ADD: _S.ONGOING,
        _E.COMMIT: Code.NONE,
        _E.ABORT: _INVALID,
        _E.COMMIT_BUMPED: _INVALID,
        _E.ABORT_BUMPED: _S.PREPARE_ABORT,
        _E.COMMIT_REPEATED: Code.NONE,
        _E.ABORT_REPEATED: _INVALID,
        _E.EXPIRE: _S.DEAD,
    },
    _S.COMPLETE_ABORT: {
        _E.INIT: _S.EMPTY,
        _E.ADD: _S.ONGOING,
        _E.COMMIT: _INVALID,
        _E.ABORT: Code.NONE,
        _E.COMMIT_BUMPED: _INVALID,
        _E.ABORT_BUMPED: _S.PREPARE_ABORT,
        _E.COMMIT_REPEATED: _INVALID,
        _E.ABORT_REPEATED: Code.NONE,
        _E.EXPIRE: _S.DEAD,
    },
    _S.DEAD: {},
}

ENDING = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
COMPLETE = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
