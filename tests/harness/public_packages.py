"""The list of the public packages, from which tests, documents, and `.ci/write-names` derive."""

PUBLIC_PACKAGES = {
    "aiokclient": "the clients, and the types, errors, and options that they use",
    "aiokclient.adapters.aiokafka": "aiokafka's interface, for programs that move",
    "aiokclient.admin": "the admin client, and what its calls take and return",
    "aiokclient.errors": "all errors",
    "aiokclient.events": "the events of a client",
    "aiokclient.patterns": "several clients combined",
    "aiokclient.protocol": "messages, for `Client.request`",
    "aiokclient.schema": "a client of schema registries, and serializers with schemas",
    "aiokclient.spark": "Kafka as a source and a sink of Spark",
    "aiokclient.spark.telemetry": "the metrics of clients as tables, on Spark",
    "aiokclient.telemetry.otel": "the bridge to OpenTelemetry",
    "aiokclient.telemetry.prometheus": "the bridge to Prometheus",
    "aiokclient.testing": "the embedded cluster, the simulation, and the proxy",
    "aiokclient.worker": "handlers of records, with retries and dead letters",
}
"""The packages whose `__all__` is the public API, with what each contains."""

NEED_PYSPARK = ("aiokclient.spark",)
"""Public packages whose names need pyspark, which is not installed in every environment."""
