"""Options of librdkafka (global and per topic), and those that confluent-kafka adds."""

from __future__ import annotations

from typing import Final

__all__ = ["ABSENT", "RENAMED"]

RENAMED: Final = {
    "metadata_broker_list": "bootstrap_servers",
    "message_max_bytes": "max_request_size",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "topic_metadata_propagation_max_ms": "max_block_ms",
    "socket_timeout_ms": "request_timeout_ms",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_error_backoff_ms": "retry_backoff_ms",
    "queue_buffering_max_ms": "linger_ms",
    "compression_codec": "compression_type",
    "message_timeout_ms": "delivery_timeout_ms",
    "request_required_acks": "acks",
    "auto_commit_enable": "enable_auto_commit",
    "partitioner_cb": "partitioner",
    "dr_cb": "on_delivery_error",
    "dr_msg_cb": "on_delivery_error",
}

_SYSTEM = "the operating system sizes the buffers of sockets"
_FILES = "pass security=Tls(cafile=..., certfile=..., keyfile=..., password=...)"
_TEXTS = "pass security=Tls(cadata=...), or files: Tls(cafile=..., certfile=..., keyfile=...)"
_CONTEXT = "pass security=Tls(context=...) with an ssl.SSLContext that sets it"
_LOG = "use Python's logging: aiokclient, aiokclient.wire, aiokclient.producer, ..."
_VERSIONS = "versions are negotiated with each broker"
_LOOP = "everything runs in the event loop; there are no callbacks to serve"
_SOCKETS = "pass connector= to make connections in another way"
_OPAQUE = "use functools.partial or a closure"
_BATCHES = "batches are bounded by batch_size, in bytes"
_BUFFER = "records beyond buffer_memory wait; see producer.full and drain()"
_PREFETCH = "two responses per broker are kept, each of at most fetch_max_bytes"
_OFFSETS = "offsets are stored by the brokers only"
_SASL = "SASL is not available in this version of aiokclient"
_STORE = (
    "a record counts as processed when the next one is requested; use tracked() and done(record)"
)

ABSENT: Final = {
    "builtin_features": "nothing is built in or left out; see aiokclient.native",
    "message_copy_max_bytes": "it is decided by what is cheaper",
    "topic_metadata_refresh_fast_interval_ms": "retry_backoff_ms and retry_backoff_max_ms pace it",
    "topic_metadata_refresh_fast_cnt": "retry_backoff_ms and retry_backoff_max_ms pace it",
    "topic_metadata_refresh_sparse": "only the topics in use are asked for",
    "topic_blacklist": "subscribe to a pattern that leaves them out",
    "debug": _LOG,
    "log_cb": _LOG,
    "logger": _LOG,
    "log_level": _LOG,
    "log_queue": _LOG,
    "log_thread_name": "there are no threads to name",
    "log_connection_close": "lost connections are logged at INFO",
    "socket_blocking_max_ms": "nothing blocks",
    "socket_send_buffer_bytes": _SYSTEM,
    "socket_receive_buffer_bytes": _SYSTEM,
    "socket_keepalive_enable": "connections are closed after connections_max_idle_ms",
    "socket_nagle_disable": "Nagle's algorithm is always disabled",
    "socket_max_fails": "a request without a response in request_timeout_ms closes its connection",
    "socket_cb": _SOCKETS,
    "connect_cb": _SOCKETS,
    "closesocket_cb": _SOCKETS,
    "open_cb": "no files are written",
    "resolve_cb": _SOCKETS,
    "broker_address_ttl": "names are resolved for each connection",
    "broker_address_family": _SOCKETS,
    "reconnect_backoff_jitter_ms": "the jitter of reconnect_backoff_ms is fixed",
    "statistics_interval_ms": "call metrics() whenever statistics are wanted",
    "stats_cb": "call metrics() whenever statistics are wanted",
    "enabled_events": _LOOP,
    "background_event_cb": _LOOP,
    "error_cb": "errors are raised by the calls that they concern; see also health()",
    "throttle_cb": "metrics() has client.throttle.seconds",
    "opaque": _OPAQUE,
    "default_topic_conf": "pass these options directly; they hold for all topics",
    "default_topic_config": "pass these options directly; they hold for all topics",
    "internal_termination_signal": "there are no threads to end",
    "enable_random_seed": "pass clock= to decide about randomness",
    "api_version_request": _VERSIONS,
    "api_version_request_timeout_ms": "request_timeout_ms bounds that request, too",
    "api_version_fallback_ms": _VERSIONS,
    "broker_version_fallback": _VERSIONS,
    "ssl_curves_list": _CONTEXT,
    "ssl_sigalgs_list": _CONTEXT,
    "ssl_key_location": _FILES,
    "ssl_key_pem": _TEXTS,
    "ssl_key": _TEXTS,
    "ssl_certificate_location": _FILES,
    "ssl_certificate_pem": _TEXTS,
    "ssl_certificate": _TEXTS,
    "ssl_ca_location": "pass security=Tls(cafile=...), or use ssl_truststore_location",
    "ssl_ca_pem": "pass security=Tls(cadata=...), or use ssl_truststore_certificates",
    "ssl_ca": "pass security=Tls(cadata=...), or use ssl_truststore_certificates",
    "ssl_ca_certificate_stores": "Tls() without cafile= uses the system's certificates",
    "ssl_crl_location": _CONTEXT,
    "ssl_providers": _CONTEXT,
    "ssl_engine_location": _CONTEXT,
    "ssl_engine_id": _CONTEXT,
    "ssl_engine_callback_data": _CONTEXT,
    "enable_ssl_certificate_verification": "pass security=Tls(context=...) with an ssl.SSLContext "
    "whose verify_mode is ssl.CERT_NONE",
    "ssl_certificate_verify_cb": _CONTEXT,
    "https_ca_location": _SASL,
    "https_ca_pem": _SASL,
    "enable_sasl_oauthbearer_unsecure_jwt": _SASL,
    "oauthbearer_token_refresh_cb": _SASL,
    "oauth_cb": _SASL,
    "plugin_library_paths": "there are no plugins",
    "interceptors": "there are no interceptors; wrap send() or the loop over the consumer",
    "group_protocol_type": "it is always consumer; GroupMember makes groups of other types",
    "coordinator_query_interval_ms": "the coordinator is looked up whenever it is not known",
    "enable_auto_offset_store": _STORE,
    "queued_min_messages": _PREFETCH,
    "queued_max_messages_kbytes": _PREFETCH,
    "fetch_queue_backoff_ms": "the next fetch is sent as soon as there is room",
    "offset_store_method": _OFFSETS,
    "offset_store_path": _OFFSETS,
    "offset_store_sync_interval_ms": _OFFSETS,
    "consume_cb": "loop over the consumer: async for record in consumer",
    "consume_callback_max_messages": "loop over consumer.batches(max_records=...)",
    "rebalance_cb": "pass listener= with on_assigned, on_revoked and on_lost",
    "offset_commit_cb": "await commit(); automatic commits that fail are logged",
    "on_commit": "await commit(); automatic commits that fail are logged",
    "on_delivery": "await the delivery that send() returns, or use its add_done_callback()",
    "enable_partition_eof": "use until_end(), or compare position() with end_offsets()",
    "enable_gapless_guarantee": "on_delivery_error tells each failure; stop there if it matters",
    "queue_buffering_max_messages": _BUFFER,
    "queue_buffering_max_kbytes": "use buffer_memory, in bytes; " + _BUFFER,
    "queue_buffering_backpressure_threshold": _BATCHES,
    "message_send_max_retries": "retries go on until delivery_timeout_ms",
    "batch_num_messages": _BATCHES,
    "delivery_report_only_error": "on_delivery_error is called for failures only",
    "sticky_partitioning_linger_ms": "records without a key change their partition once a batch "
    "is full",
    "queuing_strategy": "records are sent in order",
    "produce_offset_report": "offsets are always reported",
    "msg_order_cmp": "records are sent in order",
    "schema_registry_url": "pass serializers of a schema registry's client",
}
