"""Options of aiokafka and kafka-python."""

from __future__ import annotations

from typing import Final

__all__ = ["ABSENT", "RENAMED"]

RENAMED: Final = {
    "max_batch_size": "batch_size",
    "send_backoff_ms": "retry_backoff_ms",
    "ssl_password": "ssl_key_password",
}

_FILES = "pass security=Tls(cafile=..., certfile=..., keyfile=..., password=...)"
_CONTEXT = "pass security=Tls(context=...) with an ssl.SSLContext that sets it"
_VERSIONS = "versions are negotiated with each broker"
_METRICS = "metrics are always on; call metrics()"
_SOCKETS = "pass connector= to make connections in another way"
_END = "use poll(timeout=...), get(timeout=...) or until_end()"

ABSENT: Final = {
    "loop": "a client belongs to the event loop in which it is started",
    "api_version": _VERSIONS,
    "api_version_auto_timeout_ms": "request_timeout_ms bounds that request, too",
    "ssl_context": "pass it as security=, which takes an ssl.SSLContext",
    "ssl_check_hostname": "pass security=Tls(check_hostname=...), or use "
    "ssl_endpoint_identification_algorithm",
    "ssl_cafile": "pass security=Tls(cafile=...), or use ssl_truststore_location",
    "ssl_cadata": "pass security=Tls(cadata=...), or use ssl_truststore_certificates",
    "ssl_certfile": _FILES,
    "ssl_keyfile": _FILES,
    "ssl_crlfile": _CONTEXT,
    "ssl_ciphers": _CONTEXT,
    "rebalance_timeout_ms": "the rebalance timeout is max_poll_interval_ms",
    "consumer_timeout_ms": _END,
    "iterator_timeout": _END,
    "legacy_iterator": "there is one kind of iteration: async for record in consumer",
    "default_offset_commit_callback": "await commit(); automatic commits that fail are logged",
    "metrics_enabled": _METRICS,
    "metric_group_prefix": "the names of metrics are fixed",
    "selector": "asyncio chooses the selector",
    "socket_options": _SOCKETS,
    "sock_chunk_bytes": "responses are read straight into their memory",
    "sock_chunk_buffer_count": "responses are read straight into their memory",
    "socks5_proxy": _SOCKETS,
    "proxy_url": _SOCKETS,
    "kafka_client": "pass client=Client(...) to share connections",
    "node_not_ready_retry_timeout_ms": "a call tries again until its timeout",
    "raise_upon_socket_err_during_wakeup": "there is no wakeup; use stop()",
    "wakeup_timeout_ms": "there is no wakeup; use stop()",
    "state_change_callback": "read state and health()",
    "bootstrap_topics_filter": "only the topics in use are asked for",
    "enable_incremental_fetch_sessions": "fetch sessions are always used",
    "topics": "pass the topics first: Consumer('orders', ...)",
}
