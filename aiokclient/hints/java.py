"""Options of Kafka's Java producer, consumer, share consumer and admin client."""

from __future__ import annotations

from typing import Final

__all__ = ["ABSENT", "RENAMED"]

RENAMED: Final[dict[str, str]] = {}
"""There are none: the options here have the names of Java."""

_SYSTEM = "the operating system sizes the buffers of sockets"
_SAMPLES = "metrics() has totals and histograms; compute rates where they are collected"
_JVM = "there is no Java virtual machine; TLS is that of Python's ssl module, see security=Tls(...)"
_CONTEXT = "pass security=Tls(context=...) with an ssl.SSLContext that sets it"
_PEM = "keys are read as PEM; ssl_key_password opens an encrypted one"
_PUSH = "client metrics are not pushed in this version; metrics() returns them"
_SHARE = "share consumers are not available in this version"

ABSENT: Final = {
    "retries": "retries go on until delivery_timeout_ms (producer) or the timeout of the call",
    "send_buffer_bytes": _SYSTEM,
    "receive_buffer_bytes": _SYSTEM,
    "interceptor_classes": "there are no interceptors; wrap send() or the loop over the consumer",
    "partitioner_class": "pass a function as partitioner=; the default is Kafka's own partitioner "
    "(murmur2 of the key, sticky without a key)",
    "metric_reporters": "x.metrics() gives the metrics",
    "metrics_num_samples": _SAMPLES,
    "metrics_sample_window_ms": _SAMPLES,
    "metrics_recording_level": "all metrics are always recorded; they cost little",
    "auto_include_jmx_reporter": "there is no JMX; x.metrics() gives the metrics",
    "enable_metrics_push": _PUSH,
    "metadata_max_idle_ms": "the producer keeps the topics that it sends to in its metadata",
    "metadata_cluster_check_enable": "the cluster id is always checked in this version",
    "security_providers": _JVM,
    "config_providers": "read secrets in the program and pass them as options",
    "transaction_two_phase_commit_enable": "transactions are not available in this version",
    "bootstrap_controllers": "connect to brokers with bootstrap_servers",
    "share_acknowledgement_mode": _SHARE,
    "share_acquire_mode": _SHARE,
    "internal_leave_group_on_close": "a member leaves when it is closed, unless it is static "
    "(group_instance_id)",
    "internal_throw_on_fetch_stable_offset_unsupported": "it is internal to Kafka Streams",
    "ssl_keystore_password": _PEM,
    "ssl_truststore_password": "trusted certificates are read as PEM, which has no password",
    "ssl_keystore_key": "name a file in ssl_keystore_location, or pass security=",
    "ssl_keystore_certificate_chain": "name a file in ssl_keystore_location, or pass security=",
    "ssl_protocol": _CONTEXT,
    "ssl_enabled_protocols": _CONTEXT,
    "ssl_cipher_suites": _CONTEXT,
    "ssl_provider": _JVM,
    "ssl_keymanager_algorithm": _JVM,
    "ssl_trustmanager_algorithm": _JVM,
    "ssl_secure_random_implementation": _JVM,
    "ssl_engine_factory_class": _CONTEXT,
    "block_on_buffer_full": "await drain() for room, or use send_all(); send() never blocks",
    "timeout_ms": "request_timeout_ms bounds a request, delivery_timeout_ms a record",
    "metadata_fetch_timeout_ms": "max_block_ms bounds how long a record waits for metadata",
}
