"""The log of the library. Each line has the client id and, if there is one, the group id.

Each kind of line has a stable event name in `extra`, so that it can be found and counted without
parsing its text:

    log = ClientLog("aiokclient.consumer", config.client_id, config.group_id)
    log.warning("Broker %s is gone.", 3, extra={"event": "broker_unreachable", "broker": 3})

A `LogRecord` has the attributes `event`, `client_id` and `group_id` (None without a group), and all
other items of `extra`. `EVENTS` lists the event names.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from aiokclient.log.texts import printable

EVENTS: Final = {
    "automatic_commit_failed": "An automatic commit failed. It will be repeated.",
    "batch_refused": "A leader refused the sequence of a batch. The batch is sent again in order.",
    "batch_retried": "A broker refuses records, or a connection with them was lost. They are sent "
    "again until their deadline.",
    "batch_split": "A batch was refused as too large. It is sent again as smaller ones.",
    "bootstrap_failed": "A bootstrap server did not answer.",
    "broker_disconnected": "A connection was lost, or could not be opened.",
    "broker_misbehaved": "A broker sent what the protocol does not allow.",
    "brokers_back": "A broker is reachable again, after no broker was.",
    "brokers_unreachable": "The client has lost its connection to the last reachable broker.",
    "close_failed": "Closing failed while an error of the application propagated.",
    "cluster_changed": "The bootstrap servers or known addresses lead to another cluster.",
    "commit_failed": "Offsets could not be committed when partitions were revoked.",
    "credentials_unencrypted": "A password or token is sent without TLS.",
    "deliveries_failed": "Records were not delivered, and `on_delivery_error` is not set.",
    "group_assignment_failed": "The assignment function of the group's leader raised.",
    "group_instance_unreleased": "The coordinator still has an earlier membership of a static "
    "member (KIP-848).",
    "group_interval_refused": "A coordinator asked for heartbeats at an unusable interval.",
    "group_join_failed": "Joining the group failed. It will be repeated.",
    "group_leave_failed": "Leaving the group failed. The session timeout will end the membership.",
    "group_left": "The membership ended.",
    "group_lost": "The group removed this member, so its partitions are lost.",
    "group_rewind_failed": "A partition could not be rewound.",
    "group_rewound": "The position of a partition was changed because the group was rewound.",
    "group_state": "The membership changed its state.",
    "leader_changed": "A partition has a new leader, and its position is validated.",
    "loop_blocked": "The event loop was blocked.",
    "loop_ended": "The event loop ended before its client was closed.",
    "log_truncated": "A log was truncated below the position.",
    "metadata_outdated": "Metadata could not be refreshed. The last known metadata is used.",
    "options_ignored": "A properties file has options of other kinds of clients.",
    "partition_unreadable": "A partition cannot be read. The attempt will be repeated.",
    "partitions_assigned": "Partitions were assigned.",
    "partitions_lost": "Partitions were lost: another member may have them already.",
    "partitions_revoked": "Partitions were revoked.",
    "poll_interval_exceeded": "The application did not request records for max_poll_interval_ms.",
    "position_reset": "A position was reset by auto_offset_reset.",
    "position_restored": "A topic has its former id again, and reading continues at the position.",
    "producer_unknown": "A broker does not have the state of earlier writes by this producer.",
    "pure_modules": "The native modules are not compiled, so the pure Python ones run.",
    "reading_continues": "Records are delivered again, or the reasons for a stall are gone.",
    "reading_stalled": "Requests for records waited in vain for five seconds, for known reasons.",
    "reassignment_not_undone": "A plan that moves replicas ended early, and could not be undone.",
    "rebootstrapped": "The client starts again from its bootstrap servers.",
    "request_refused": "A broker refuses a request. It is repeated until its deadline.",
    "response_too_large": "A response was larger than receive_message_max_bytes.",
    "schema_registry_left": "A schema registry is not available. Requests go to the next url.",
    "share_fetch_refused": (
        "A broker has refused to fetch a partition for a share consumer. It is repeated."
    ),
    "share_group_full": "A share group has as many members as it may. Joining is repeated.",
    "share_processing_overdue": (
        "A record was not settled within `max_processing_ms`. Its lock is not renewed any more."
    ),
    "share_record_dropped": (
        "A tracked record was garbage collected without being settled. It is released."
    ),
    "share_renewal_impossible": "Locks of a share group cannot be renewed.",
    "share_request_failed": "A request of a share session has failed. It is repeated.",
    "share_session_end_failed": (
        "A share session could not be ended. Its connection is closed, which ends it."
    ),
    "share_settlement_failed": "A settlement was lost or refused, and nothing waits for it.",
    "share_topics_refused": (
        "The user may not describe a topic of a share consumer. It is repeated."
    ),
    "task_died": "A background task died, and its client with it.",
    "task_hangs": "A background task does not end when it is cancelled.",
    "telemetry_died": "Metrics are no longer pushed, because of a bug. The client continues.",
    "telemetry_id": "The brokers have given the client its instance id.",
    "telemetry_metric_left_out": "A metric of the application could not be read or exported.",
    "telemetry_partitions_left_out": "The series of partitions are too many to be pushed.",
    "telemetry_refused": "A broker has refused the metrics of the client, or did not respond.",
    "tls_files_refused": "Replaced certificate files cannot be used. The old ones stay in use.",
    "tls_files_replaced": "Certificate files were replaced. New connections use the new files.",
    "token_failed": "The token provider failed. It will be called again.",
    "topic_missing": "A subscribed topic does not exist yet.",
    "topic_unreadable": "The brokers refuse a subscribed topic, for example for its permissions.",
    "transaction_repeated": "A batch of `transform` is repeated after an error.",
    "unread_errors": "The errors of an admin call were dropped, and nothing looked at them.",
    "wire_failure": "A request failed without a response.",
    "wire_request": "A request was written.",
    "wire_response": "A response was read.",
    "worker_batch_passed_over": (
        "A worker over a share consumer has passed over a record batch that cannot be read."
    ),
    "worker_failed": "A worker has ended with an error, and its process ends.",
    "worker_few_lanes": "A worker has fewer lanes than it may call handlers at a time.",
    "worker_handler_stuck": "A handler goes on although it was cancelled.",
    "worker_partition_paused": "A partition is paused, because a record of it is retried for long.",
    "worker_record_failed": "The handler of a record has failed.",
    "worker_signalled": "A worker drains, or cancels its handlers, because of a signal.",
    "worker_write_failed": "A retry record or a dead letter could not be written. It is repeated.",
}
"""The names of all events, with their meanings."""


class ClientLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose lines begin with the client id and the group."""

    def __init__(self, name: str, client_id: str, group_id: str | None = None) -> None:
        super().__init__(
            logging.getLogger(name), {"client_id": client_id, "group_id": group_id, "event": None}
        )
        self._prefix = f"client {client_id}"
        if group_id is not None:
            self._prefix += f", group {group_id}"

    @classmethod
    def of(cls, name: str, config: Any) -> ClientLog:
        """Return the log of a client with the given options, which may include a group id."""
        return cls(name, config.client_id, getattr(config, "group_id", None))

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log `msg % args` after the prefix; `extra` is added to that of the client."""
        if not self.isEnabledFor(level):
            return
        extra = {**(self.extra or {}), **(kwargs.pop("extra", None) or {})}
        # The logger must skip one more stack frame to find the caller.
        level_of_caller = kwargs.pop("stacklevel", 1) + 1
        self.logger.log(
            level,
            f"%s: {msg}",
            self._prefix,
            *(printable(each) if type(each) is str else each for each in args),
            extra=extra,
            stacklevel=level_of_caller,
            **kwargs,
        )
