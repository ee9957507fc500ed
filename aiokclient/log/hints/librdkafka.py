"""Options of librdkafka (global and per topic), and those that confluent-kafka adds."""

from __future__ import annotations

from typing import Final

RENAMED: Final = {
    "metadata_broker_list": "bootstrap_servers",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
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

_SYSTEM = "The operating system sizes the buffers of sockets."
_FILES = "Pass security=Tls(cafile=..., certfile=..., keyfile=..., password=...)."
_TEXTS = "Pass security=Tls(cadata=...), or files: Tls(cafile=..., certfile=..., keyfile=...)."
_CONTEXT = "Pass security=Tls(context=...) with an ssl.SSLContext that has this setting."
_LOG = "Use Python's logging. The loggers are aiokclient and its children."
_VERSIONS = "Versions are negotiated with each broker."
_LOOP = "Everything runs in the event loop. There are no callbacks to serve."
_SOCKETS = "Pass connector= to open connections in another way."
_OPAQUE = "Use functools.partial or a closure."
_BATCHES = "Use batch_size, which limits a batch in bytes."
_BUFFER = "Records beyond buffer_memory wait in an overflow queue. See producer.full and drain()."
_PREFETCH = "The consumer buffers two responses per broker, each of at most fetch_max_bytes."
_OFFSETS = "Only the brokers store offsets."
_USER = (
    "Pass security=SaslScram(user, password) or SaslPlain(user, password), with tls=Tls() for "
    "SASL_SSL, or use sasl_jaas_config."
)
_TOKEN = "Pass security=SaslOAuthBearer(token_provider=...)."
_TICKET = "Pass security=SaslGssapi(service_name=..., principal=..., keytab=...)."
_STORE = (
    "A record counts as processed when the next one is requested. Use tracked() and done(record)."
)

ABSENT: Final = {
    "builtin_features": "All builds have the same features. See aiokclient.native.",
    "message_copy_max_bytes": "The library copies data only where that is cheaper.",
    "topic_metadata_refresh_fast_interval_ms": "Use retry_backoff_ms and retry_backoff_max_ms.",
    "topic_metadata_refresh_fast_cnt": "Use retry_backoff_ms and retry_backoff_max_ms.",
    "topic_metadata_refresh_sparse": "The client always requests only the topics that it uses.",
    "topic_blacklist": "Subscribe to a pattern that does not match these topics.",
    "debug": _LOG,
    "log_cb": _LOG,
    "logger": _LOG,
    "log_level": _LOG,
    "log_queue": _LOG,
    "log_thread_name": "The client runs in the event loop, not in named threads.",
    "log_connection_close": "Lost connections are always logged at INFO.",
    "socket_blocking_max_ms": "The client never blocks on a socket.",
    "socket_send_buffer_bytes": _SYSTEM,
    "socket_receive_buffer_bytes": _SYSTEM,
    "socket_keepalive_enable": "Connections are closed after connections_max_idle_ms.",
    "socket_nagle_disable": "Nagle's algorithm is always disabled.",
    "socket_max_fails": "A request without a response in request_timeout_ms closes its connection.",
    "socket_cb": _SOCKETS,
    "connect_cb": _SOCKETS,
    "closesocket_cb": _SOCKETS,
    "open_cb": "The client writes no files.",
    "resolve_cb": _SOCKETS,
    "broker_address_ttl": "Host names are resolved for each connection.",
    "broker_address_family": _SOCKETS,
    "reconnect_backoff_jitter_ms": "The jitter of reconnect_backoff_ms is fixed.",
    "statistics_interval_ms": "Call metrics() whenever you need statistics.",
    "stats_cb": "Call metrics() whenever you need statistics.",
    "enabled_events": _LOOP,
    "background_event_cb": _LOOP,
    "error_cb": "Errors are raised by the calls that they concern. See also health().",
    "throttle_cb": "Call metrics(), which contains client.throttle.seconds.",
    "opaque": _OPAQUE,
    "default_topic_conf": "Pass these options directly. They apply to all topics.",
    "default_topic_config": "Pass these options directly. They apply to all topics.",
    "internal_termination_signal": "The client has no threads that must end.",
    "enable_random_seed": "Pass clock= to provide another source of randomness.",
    "api_version_request": _VERSIONS,
    "api_version_request_timeout_ms": "Use request_timeout_ms, which also limits this request.",
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
    "ssl_ca_location": "Pass security=Tls(cafile=...), or use ssl_truststore_location.",
    "ssl_ca_pem": "Pass security=Tls(cadata=...), or use ssl_truststore_certificates.",
    "ssl_ca": "Pass security=Tls(cadata=...), or use ssl_truststore_certificates.",
    "ssl_ca_certificate_stores": "Tls() without cafile= uses the system's certificates.",
    "ssl_crl_location": _CONTEXT,
    "ssl_providers": _CONTEXT,
    "ssl_engine_location": _CONTEXT,
    "ssl_engine_id": _CONTEXT,
    "ssl_engine_callback_data": _CONTEXT,
    "enable_ssl_certificate_verification": (
        "Pass security=Tls(context=...) with an ssl.SSLContext whose verify_mode is ssl.CERT_NONE."
    ),
    "ssl_certificate_verify_cb": _CONTEXT,
    "https_ca_location": _TOKEN,
    "https_ca_pem": _TOKEN,
    "enable_sasl_oauthbearer_unsecure_jwt": _TOKEN,
    "oauthbearer_token_refresh_cb": _TOKEN,
    "oauth_cb": _TOKEN,
    "sasl_username": _USER,
    "sasl_password": _USER,
    "sasl_oauthbearer_method": _TOKEN,
    "sasl_oauthbearer_config": _TOKEN,
    "sasl_oauthbearer_extensions": _TOKEN,
    "sasl_oauthbearer_grant_type": _TOKEN,
    "sasl_oauthbearer_metadata_authentication_type": _TOKEN,
    "sasl_oauthbearer_assertion_jwt_template_file": _TOKEN,
    "sasl_kerberos_principal": _TICKET,
    "sasl_kerberos_keytab": _TICKET,
    "sasl_kerberos_kinit_cmd": _TICKET,
    "sasl_kerberos_min_time_before_relogin": _TICKET,
    "plugin_library_paths": "There are no plugins.",
    "interceptors": "There are no interceptors. Wrap send() or the loop over the consumer.",
    "group_protocol_type": (
        "The type is always consumer. Use GroupMember for groups of other types."
    ),
    "coordinator_query_interval_ms": "The client looks up the coordinator whenever it is unknown.",
    "enable_auto_offset_store": _STORE,
    "queued_min_messages": _PREFETCH,
    "queued_max_messages_kbytes": _PREFETCH,
    "fetch_queue_backoff_ms": "The consumer sends the next fetch as soon as its buffer has room.",
    "offset_store_method": _OFFSETS,
    "offset_store_path": _OFFSETS,
    "offset_store_sync_interval_ms": _OFFSETS,
    "consume_cb": "Iterate over the consumer: async for record in consumer.",
    "consume_callback_max_messages": "Iterate over consumer.batches(max_records=...).",
    "rebalance_cb": "Pass listener= with on_assigned, on_revoked, and on_lost.",
    "offset_commit_cb": "Await commit() to see its errors. Failed automatic commits are logged.",
    "on_commit": "Await commit() to see its errors. Failed automatic commits are logged.",
    "on_delivery": "Await the delivery that send() returns, or use its add_done_callback().",
    "enable_partition_eof": "Use until_end(), or compare position() with end_offsets().",
    "enable_gapless_guarantee": (
        "Use on_delivery_error, which is called for each failure, to stop sending if necessary."
    ),
    "queue_buffering_max_messages": _BUFFER,
    "queue_buffering_max_kbytes": "Use buffer_memory, in bytes. " + _BUFFER,
    "queue_buffering_backpressure_threshold": _BATCHES,
    "message_send_max_retries": "Retries continue until delivery_timeout_ms.",
    "batch_num_messages": _BATCHES,
    "delivery_report_only_error": "Use on_delivery_error, which is called for failures only.",
    "sticky_partitioning_linger_ms": (
        "Records without a key change their partition once a batch is full."
    ),
    "queuing_strategy": "Records are sent in order.",
    "produce_offset_report": "Offsets are always reported.",
    "msg_order_cmp": "Records are sent in order.",
    "schema_registry_url": "Pass the serializers of a schema registry client.",
}
