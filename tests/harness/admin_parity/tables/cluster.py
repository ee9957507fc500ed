"""Scenarios about the cluster, its configurations, features, quorum, and the client itself."""

from admin_parity.scenario import Scenario, configured, topic

FUTURE = "AAAAAAAAAAAAAAAAAAAATQ"
ENDPOINTS = [["CONTROLLER", "127.0.0.1", 9]]
METRICS = "org.apache.kafka."
QUORUM_TIMES = ("lastFetchTimestamp", "lastCaughtUpTimestamp", "logEndOffset", "highWatermark")

ROWS = (
    Scenario("describeCluster", "with operations", {"operations": True}, (), True),
    Scenario("describeCluster", "without operations", {}, (), True),
    Scenario("describeCluster", "with fenced brokers", {"fenced": True}, (), True),
    Scenario(
        "describeCluster", "without permission", {"operations": True}, (), True, client="alice"
    ),
    Scenario(
        "describeConfigs",
        "of a topic, a group, a subscription, and of what does not exist",
        {
            "resources": [
                ["TOPIC", "$t"],
                ["TOPIC", "$absent"],
                ["GROUP", "$g"],
                ["CLIENT_METRICS", "$m"],
                ["TOPIC", ""],
            ],
            "synonyms": True,
        },
        (
            topic("$t", retention_ms=1000),
            configured("group", "$g", consumer_session_timeout_ms=50_000),
            configured("client_metrics", "$m", metrics=METRICS),
        ),
        True,
    ),
    Scenario(
        "describeConfigs",
        "of a topic, with documentation",
        {"resources": [["TOPIC", "$t"]], "documentation": True},
        (topic("$t"),),
        True,
    ),
    Scenario("describeConfigs", "of a broker", {"resources": [["BROKER", "1"]]}, (), True),
    Scenario("describeConfigs", "of all brokers", {"resources": [["BROKER", ""]]}, (), True),
    Scenario(
        "describeConfigs",
        "of loggers",
        {"resources": [["BROKER_LOGGER", "1"]]},
        reads=True,
        elsewhere="the embedded cluster has no loggers",
    ),
    Scenario(
        "describeConfigs",
        "without permission",
        {"resources": [["TOPIC", "$t"], ["BROKER", "1"], ["GROUP", "$g"]]},
        (topic("$t"),),
        True,
        client="alice",
    ),
    Scenario(
        "incrementalAlterConfigs",
        "set, removed, added to, and refused for each reason",
        {
            "changes": [
                ["TOPIC", "$t", [["SET", "retention.ms", "5000"], ["DELETE", "flush.ms", None]]],
                ["TOPIC", "$list", [["APPEND", "cleanup.policy", "compact"]]],
                ["TOPIC", "$less", [["SUBTRACT", "cleanup.policy", "delete"]]],
                ["TOPIC", "$absent", [["SET", "retention.ms", "5000"]]],
                ["TOPIC", "$unknown", [["SET", "nope", "1"]]],
                ["TOPIC", "$removed", [["DELETE", "nope", None]]],
                ["TOPIC", "$value", [["SET", "retention.ms", "x"]]],
                ["TOPIC", "$scalar", [["APPEND", "retention.ms", "1"]]],
                ["TOPIC", "", [["SET", "retention.ms", "1"]]],
                ["GROUP", "$g", [["SET", "consumer.session.timeout.ms", "50000"]]],
                ["GROUP", "$far", [["SET", "consumer.session.timeout.ms", "1"]]],
                ["GROUP", "$nope", [["SET", "nope", "1"]]],
                ["CLIENT_METRICS", "$m", [["SET", "metrics", METRICS]]],
                ["CLIENT_METRICS", "$often", [["SET", "interval.ms", "1"]]],
                ["CLIENT_METRICS", "$match", [["SET", "match", "nope=1"]]],
            ]
        },
        tuple(
            topic(f"${name}", flush_ms=10)
            for name in ("t", "list", "less", "unknown", "removed", "value", "scalar")
        ),
        then=(
            "describeConfigs",
            {
                "resources": [
                    ["TOPIC", "$t"],
                    ["TOPIC", "$list"],
                    ["TOPIC", "$less"],
                    ["TOPIC", "$scalar"],
                    ["GROUP", "$g"],
                    ["CLIENT_METRICS", "$m"],
                ]
            },
        ),
    ),
    Scenario(
        "incrementalAlterConfigs",
        "only checked",
        {
            "changes": [
                ["TOPIC", "$t", [["SET", "retention.ms", "5000"]]],
                ["TOPIC", "$absent", [["SET", "retention.ms", "5000"]]],
            ],
            "validateOnly": True,
        },
        (topic("$t"),),
        then=("describeConfigs", {"resources": [["TOPIC", "$t"]]}),
    ),
    Scenario(
        "incrementalAlterConfigs",
        "of a broker",
        {"changes": [["BROKER", "1", [["SET", "node.id", "2"]]]]},
    ),
    Scenario(
        "incrementalAlterConfigs",
        "of a broker that does not exist",
        {"changes": [["BROKER", "x", [["SET", "log.cleaner.threads", "1"]]]]},
        differs="Java raises NumberFormatException, and this client ArgumentValueError",
    ),
    Scenario(
        "incrementalAlterConfigs",
        "of all brokers",
        {"changes": [["BROKER", "", [["SET", "log.cleaner.threads", "x"]]]]},
    ),
    Scenario(
        "incrementalAlterConfigs",
        "without permission",
        {
            "changes": [
                ["TOPIC", "$t", [["SET", "retention.ms", "1"]]],
                ["GROUP", "$g", [["SET", "consumer.session.timeout.ms", "50000"]]],
                ["CLIENT_METRICS", "$m", [["SET", "metrics", METRICS]]],
            ]
        },
        (topic("$t"),),
        client="alice",
    ),
    Scenario(
        "listConfigResources",
        "of each type",
        {},
        (topic("$t"), configured("group", "$g", consumer_session_timeout_ms=50_000)),
        True,
    ),
    Scenario(
        "listConfigResources",
        "of some types",
        {"types": ["GROUP", "CLIENT_METRICS", "BROKER"]},
        (
            configured("group", "$g", consumer_session_timeout_ms=50_000),
            configured("client_metrics", "$m", metrics=METRICS),
        ),
        True,
    ),
    Scenario("listConfigResources", "without permission", {}, (), True, client="alice"),
    Scenario(
        "listClientMetricsResources",
        "of a subscription",
        {},
        (configured("client_metrics", "$m", metrics=METRICS),),
        True,
    ),
    Scenario("listClientMetricsResources", "without permission", {}, (), True, client="alice"),
    Scenario("describeFeatures", "of the cluster", {}, (), True),
    Scenario("describeFeatures", "of a broker", {"node": 1}, (), True),
    Scenario("describeFeatures", "of a user without permission", {}, (), True, client="alice"),
    Scenario(
        "describeFeatures",
        "of a broker that does not exist",
        {"node": 77},
        reads=True,
        client="hasty",
    ),
    Scenario(
        "updateFeatures",
        "to the same level, only checked",
        {"levels": {"group.version": [1, "UPGRADE"]}, "validateOnly": True},
    ),
    Scenario(
        "updateFeatures",
        "to a level that is too high",
        {"levels": {"group.version": [1, "UPGRADE"], "metadata.version": [999, "UPGRADE"]}},
    ),
    Scenario("updateFeatures", "of an unknown one", {"levels": {"nope": [1, "UPGRADE"]}}),
    Scenario(
        "updateFeatures",
        "downgraded without saying so",
        {"levels": {"group.version": [0, "UPGRADE"]}},
        differs="Java refuses a level 0 as an upgrade before it is sent; check=True does, too",
    ),
    Scenario(
        "updateFeatures",
        "disabled",
        {"levels": {"group.version": [0, "SAFE_DOWNGRADE"]}, "validateOnly": True},
        elsewhere="the levels of the embedded cluster do not change",
    ),
    Scenario(
        "updateFeatures",
        "unsafely downgraded",
        {"levels": {"metadata.version": [7, "UNSAFE_DOWNGRADE"]}, "validateOnly": True},
    ),
    Scenario(
        "updateFeatures",
        "without permission",
        {"levels": {"group.version": [1, "UPGRADE"]}},
        client="alice",
    ),
    Scenario("describeMetadataQuorum", "of the cluster", {}, (), True, varies=QUORUM_TIMES),
    Scenario("describeMetadataQuorum", "without permission", {}, (), True, client="alice"),
    Scenario(
        "addRaftVoter",
        "where voters do not change",
        {"voter": 77, "directory": FUTURE, "endpoints": ENDPOINTS},
    ),
    Scenario(
        "addRaftVoter",
        "of another cluster",
        {"voter": 77, "directory": FUTURE, "endpoints": ENDPOINTS, "cluster": "another"},
    ),
    Scenario(
        "addRaftVoter",
        "without permission",
        {"voter": 77, "directory": FUTURE, "endpoints": ENDPOINTS},
        client="alice",
    ),
    Scenario("removeRaftVoter", "where voters do not change", {"voter": 1, "directory": FUTURE}),
    Scenario(
        "removeRaftVoter",
        "of another cluster",
        {"voter": 1, "directory": FUTURE, "cluster": "another"},
    ),
    Scenario(
        "removeRaftVoter",
        "without permission",
        {"voter": 1, "directory": FUTURE},
        client="alice",
    ),
    Scenario("unregisterBroker", "that does not exist", {"id": 77}),
    Scenario("unregisterBroker", "without permission", {"id": 77}, client="alice"),
    Scenario("unregisterController", "that does not exist", {"id": 77}),
    Scenario("unregisterController", "that is active", {"id": 1}, on=("embedded", "kafka")),
    Scenario("unregisterController", "without permission", {"id": 77}, client="alice"),
    Scenario("create", "from options", {"options": "$=options"}, (), True),
    Scenario(
        "create",
        "without servers",
        {"options": {"client.id": "nobody"}},
        reads=True,
    ),
    Scenario(
        "create",
        "with an impossible option",
        {"options": {"bootstrap.servers": "localhost:1", "security.protocol": "nope"}},
        reads=True,
    ),
    Scenario("close", "twice", {"options": "$=options", "timeoutMs": 1000, "twice": True}),
    Scenario("close", "and then a call", {"options": "$=options", "timeoutMs": 1000}),
    Scenario("metrics", "count connections", {}, (), True),
    Scenario(
        "metrics",
        "after the end",
        {"options": "$=options"},
        (),
        True,
        differs="Java returns no metrics; here they raise ClosedError",
    ),
    Scenario("registerMetricForSubscription", "a metric", {"name": "parity"}),
    Scenario(
        "registerMetricForSubscription",
        "nothing",
        {"name": None},
        differs="Java raises NullPointerException, and this client ArgumentTypeError",
    ),
    Scenario("unregisterMetricFromSubscription", "a metric", {"name": "parity"}),
    Scenario("unregisterMetricFromSubscription", "an unknown one", {"name": "never"}),
    Scenario("clientInstanceId", "of this client", {"timeoutMs": 10_000}, (), True),
    Scenario(
        "clientInstanceId",
        "with a negative timeout",
        {"timeoutMs": -1},
        reads=True,
        differs="Java refuses the timeout; here an id that is known needs no time",
    ),
)
