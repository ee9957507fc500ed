"""The errors of records that were not delivered in time, with what the brokers said last."""

from __future__ import annotations

from aiokclient.cluster.requests.attempts import is_refusal
from aiokclient.errors import DeliveryTimeoutError, KafkaError
from aiokclient.producer.batching.queue import QueuedBatch
from aiokclient.producer.batching.stages import BatchStage, InLog

__all__ = ["late_error", "why_never_sent"]

NOT_WRITTEN = "It is safe to send the record again. Check that the partition can be written."


def late_error(
    batch: QueuedBatch, waited_s: float, error: KafkaError | None, why: str = ""
) -> KafkaError:
    """Return the error of a batch that was not acknowledged in time.

    `error` is that of the last attempt, which becomes the cause. `why` is the reason for which the
    batch was never sent.
    """
    error = error or batch.last_error
    if not batch.attempt:
        text = f"It was never sent: for {waited_s:.1f} s, {why}. It was not written."
        unwritten = True
    else:
        sent = f"It was sent {batch.attempt} time(s) in {waited_s:.1f} s"
        unwritten = batch.in_log is InLog.NO and batch.stage is not BatchStage.IN_FLIGHT
        if unwritten and error is not None:
            text = f"{sent} and refused each time, so it was not written."
        else:
            text, unwritten = f"{sent} and not acknowledged.", False
    answer = batch.last_answer
    if error is not None and not is_refusal(error) and answer is not None and is_refusal(answer):
        text = f"{text} After the last answer: {error.brief}"
        error = answer
    late = DeliveryTimeoutError(text, topic_partition=batch.queue.topic_partition)
    if unwritten:
        late.hint = NOT_WRITTEN
    late.__cause__ = error
    return late


def why_never_sent(batch: QueuedBatch, idempotent: bool, transactional: bool = False) -> str:
    """Return the reason for which a batch was not sent, as a clause."""
    queue = batch.queue
    if queue.topic.info is None:
        return "no broker described the partitions of the topic"
    if queue.sender is None:
        return "the partition had no leader"
    if queue.unsendable:
        return f"its leader, broker {queue.sender.node_id}, was disconnected or did not answer"
    if transactional and queue.sequences.producer_id < 0:
        return "the coordinator did not add its partition to the transaction"
    if idempotent and queue.sequences.producer_id < 0:
        return "no broker returned a producer id"
    if batch.compressing:
        return "it was being compressed, or waited for a thread for that"
    return "older records were sent first"
