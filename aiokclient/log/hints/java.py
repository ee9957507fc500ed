"""Options of Kafka's Java producer, consumer, share consumer, and admin client."""

from __future__ import annotations

from typing import Final

RENAMED: Final[dict[str, str]] = {}
"""Java's options with another name here. There are none."""

_SYSTEM = "The operating system sizes the buffers of sockets."
_SAMPLES = "The result of metrics() has totals and histograms. Compute rates from them."
_JVM = "There is no Java virtual machine. TLS uses Python's ssl module. Pass security=Tls(...)."
_CONTEXT = "Pass security=Tls(context=...) with an ssl.SSLContext that has this setting."
_PEM = "Keys must be in PEM format. Use ssl_key_password for an encrypted key."
_TOKEN = "Pass security=SaslOAuthBearer(token_provider=...), with an async function."
_VALIDATION = "Only brokers use it, to validate tokens."
_TICKET = (
    "The Kerberos library gets a new ticket when a login needs one. Pass "
    "security=SaslGssapi(keytab=...), or renew the ticket cache outside the program."
)
_TRACKED = (
    "ShareConsumer.tracked() delivers records that are settled one by one. All other reads accept "
    "a record when the next one is requested."
)

ABSENT: Final = {
    "retries": "Retries continue until delivery_timeout_ms (producer) or the timeout of the call.",
    "send_buffer_bytes": _SYSTEM,
    "receive_buffer_bytes": _SYSTEM,
    "interceptor_classes": "There are no interceptors. Wrap send() or the loop over the consumer.",
    "partitioner_class": (
        "Pass a function as partitioner=. The default is Kafka's own partitioner (murmur2 of the "
        "key, sticky without a key)."
    ),
    "metric_reporters": "Call metrics(), which returns all metrics.",
    "metrics_num_samples": _SAMPLES,
    "metrics_sample_window_ms": _SAMPLES,
    "metrics_recording_level": "All metrics are always recorded. They cost little.",
    "auto_include_jmx_reporter": "There is no JMX. Call metrics() instead.",
    "metadata_max_idle_ms": "The producer keeps the topics that it sends to in its metadata.",
    "security_providers": _JVM,
    "config_providers": "Read secrets in the program and pass them as options.",
    "transaction_two_phase_commit_enable": "Two-phase commit (KIP-939) is not available.",
    "share_acknowledgement_mode": _TRACKED,
    "internal_leave_group_on_close": (
        "A member leaves when it is closed, unless it is static (group_instance_id)."
    ),
    "internal_throw_on_fetch_stable_offset_unsupported": "Only Kafka Streams uses this option.",
    "ssl_keystore_password": _PEM,
    "ssl_truststore_password": "Trusted certificates must be in PEM format, which has no password.",
    "sasl_client_callback_handler_class": (
        "There are no callback handlers. For Amazon MSK with IAM, set sasl_mechanism=OAUTHBEARER "
        "and sasl_oauthbearer_token_provider=module:function."
    ),
    "sasl_kerberos_ticket_renew_window_factor": _TICKET,
    "sasl_kerberos_ticket_renew_jitter": _TICKET,
    "sasl_kerberos_kinit_cmd": _TICKET,
    "sasl_kerberos_min_time_before_relogin": _TICKET,
    "sasl_login_class": _TOKEN,
    "sasl_oauthbearer_jwt_validator_class": _VALIDATION,
    "sasl_oauthbearer_jwks_endpoint_url": _VALIDATION,
    "sasl_oauthbearer_jwks_endpoint_refresh_ms": _VALIDATION,
    "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": _VALIDATION,
    "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": _VALIDATION,
    "sasl_oauthbearer_clock_skew_seconds": _VALIDATION,
    "sasl_oauthbearer_allow_unverified_audience": _VALIDATION,
    "sasl_oauthbearer_expected_audience": _VALIDATION,
    "sasl_oauthbearer_allow_unverified_issuer": _VALIDATION,
    "sasl_oauthbearer_expected_issuer": _VALIDATION,
    "ssl_provider": _JVM,
    "ssl_keymanager_algorithm": _JVM,
    "ssl_trustmanager_algorithm": _JVM,
    "ssl_secure_random_implementation": _JVM,
    "ssl_engine_factory_class": _CONTEXT,
    "block_on_buffer_full": (
        "The method send() never blocks. Await drain(), or use send_all(), to wait for room."
    ),
    "timeout_ms": "Use request_timeout_ms for requests and delivery_timeout_ms for records.",
    "metadata_fetch_timeout_ms": (
        "Use max_block_ms, which limits how long a record waits for metadata."
    ),
}

OWNERS: Final = {
    "block_on_buffer_full": ("Producer",),
    "metadata_fetch_timeout_ms": ("Producer",),
    "metadata_max_idle_ms": ("Producer",),
    "partitioner_class": ("Producer",),
    "retries": ("Producer", "Admin"),
    "share_acknowledgement_mode": ("ShareConsumer",),
    "transaction_two_phase_commit_enable": ("Producer",),
}
"""The kinds of clients that have an option of `ABSENT` in Java, if not all have it."""
