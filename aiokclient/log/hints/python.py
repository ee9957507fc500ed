"""Options of aiokafka and kafka-python."""

from __future__ import annotations

from typing import Final

RENAMED: Final = {
    "max_batch_size": "batch_size",
    "send_backoff_ms": "retry_backoff_ms",
    "ssl_password": "ssl_key_password",
    "ssl_ciphers": "ssl_cipher_suites",
}

_FILES = "Pass security=Tls(cafile=..., certfile=..., keyfile=..., password=...)."
_USER = (
    "Pass security=SaslScram(user, password) or SaslPlain(user, password), with tls=Tls() for "
    "SASL_SSL, or use sasl_jaas_config."
)
_TICKET = "Pass security=SaslGssapi(service_name=..., principal=..., keytab=...)."
_CONTEXT = "Pass security=Tls(context=...) with an ssl.SSLContext that has this setting."
_VERSIONS = "Versions are negotiated with each broker."
_METRICS = "Metrics are always enabled. Call metrics()."
_SOCKETS = "Pass connector= to open connections in another way."
_END = "Use poll(timeout=...), get(timeout=...), or until_end()."

ABSENT: Final = {
    "loop": "A client belongs to the event loop in which it is started.",
    "api_version": _VERSIONS,
    "api_version_auto_timeout_ms": "Use request_timeout_ms, which also limits this request.",
    "ssl_context": "Pass the ssl.SSLContext as security=.",
    "ssl_check_hostname": (
        "Pass security=Tls(check_hostname=...), or use ssl_endpoint_identification_algorithm."
    ),
    "ssl_cafile": "Pass security=Tls(cafile=...), or use ssl_truststore_location.",
    "ssl_cadata": "Pass security=Tls(cadata=...), or use ssl_truststore_certificates.",
    "ssl_certfile": _FILES,
    "ssl_keyfile": _FILES,
    "sasl_plain_username": _USER,
    "sasl_plain_password": _USER,
    "sasl_oauth_token_provider": "Pass security=SaslOAuthBearer(token_provider=...).",
    "sasl_kerberos_name": _TICKET,
    "ssl_crlfile": _CONTEXT,
    "rebalance_timeout_ms": "Use max_poll_interval_ms, which is also the rebalance timeout.",
    "consumer_timeout_ms": _END,
    "iterator_timeout": _END,
    "legacy_iterator": "There is only one kind of iteration: async for record in consumer.",
    "default_offset_commit_callback": (
        "Await commit() to see its errors. Failed automatic commits are logged."
    ),
    "metrics_enabled": _METRICS,
    "metric_group_prefix": "The names of metrics are fixed.",
    "selector": "The event loop has its own selector.",
    "socket_options": _SOCKETS,
    "sock_chunk_bytes": "Responses are received directly into their final buffers.",
    "sock_chunk_buffer_count": "Responses are received directly into their final buffers.",
    "socks5_proxy": _SOCKETS,
    "proxy_url": _SOCKETS,
    "kafka_client": "Pass client=Client(...) to share connections.",
    "node_not_ready_retry_timeout_ms": "Calls are retried until their timeout.",
    "raise_upon_socket_err_during_wakeup": "There is no wakeup. Use stop().",
    "wakeup_timeout_ms": "There is no wakeup. Use stop().",
    "state_change_callback": "Read the attribute state, or call health().",
    "bootstrap_topics_filter": "The client always requests only the topics that it uses.",
    "enable_incremental_fetch_sessions": "Fetch sessions are always used.",
    "topics": "Pass the topics first: Consumer('orders', ...).",
}
