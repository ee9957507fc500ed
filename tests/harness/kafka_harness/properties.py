"""The properties of a test node, for low memory, fast elections, and fast failure detection."""

from collections.abc import Mapping

FAST = {
    "log.cleaner.dedupe.buffer.size": 2097152,  # The default takes 128 MiB of heap.
    "auto.create.topics.enable": "false",
    "num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "log.segment.delete.delay.ms": 100,
    # Tests write records with timestamps of 1970, which must not be deleted.
    "log.retention.check.interval.ms": 86400000,
    "log.initial.task.delay.ms": 86400000,
    # By default, a controller without work writes two records a second, which all brokers read.
    "metadata.max.idle.interval.ms": 5000,
    # Groups that are briefly empty must not be deleted.
    "offsets.retention.check.interval.ms": 86400000,
    # Without this, leaders would move every five minutes, during any test.
    "auto.leader.rebalance.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
}
FAST_4 = {
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.share.heartbeat.interval.ms": 500,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.min.session.timeout.ms": 1000,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1000,
    "share.coordinator.state.topic.num.partitions": 3,
}
FAILOVER = {
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 200,
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.election.backoff.max.ms": 200,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.request.timeout.ms": 1000,
}


def node_properties(
    node_id: int,
    roles: str,
    *,
    major: int,
    brokers: int,
    folder: str,
    port: int,
    controllers: Mapping[int, int],
    listeners: Mapping[str, tuple[str, int]],
    hosts: Mapping[str, str],
) -> dict[str, object]:
    """Return the properties of one node.

    ``controllers`` maps the node ids of the quorum to ports. ``listeners`` maps the names of a
    broker's additional listeners to security protocol and port. ``hosts`` maps the names of
    listeners to the host names that they advertise. The default is 127.0.0.1.
    """
    replication, in_sync = min(3, brokers), min(2, brokers)
    ports = {name: port for name, (_, port) in listeners.items()}
    if "broker" in roles:
        ports["PLAINTEXT"] = port
    if "controller" in roles:
        ports["CONTROLLER"] = controllers[node_id]
    protocols = {name: protocol for name, (protocol, _) in listeners.items()}
    protocols |= {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    properties: dict[str, object] = {
        "node.id": node_id,
        "process.roles": roles,
        "log.dirs": folder,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{i}@127.0.0.1:{p}" for i, p in controllers.items()),
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
        "default.replication.factor": replication,
        "offsets.topic.replication.factor": replication,
        "transaction.state.log.replication.factor": replication,
        "transaction.state.log.min.isr": in_sync,
        **FAST,
        **FAILOVER,
    }
    if brokers == 1:
        # There is only one broker. It must not count as dead when it gets no processor time for a
        # while.
        properties["broker.session.timeout.ms"] = 20000
        # Nobody waits for its failure either. With 200 ms, an idle node takes twice the CPU time.
        properties["broker.heartbeat.interval.ms"] = 2000
    if "broker" in roles:
        properties["inter.broker.listener.name"] = "PLAINTEXT"
    if "broker" in roles and hosts:
        properties["advertised.listeners"] = ",".join(
            f"{name}://{hosts.get(name, '127.0.0.1')}:{port}"
            for name, port in ports.items()
            if name != "CONTROLLER"
        )
    if major >= 4:
        properties |= FAST_4
        properties["share.coordinator.state.topic.replication.factor"] = replication
        properties["share.coordinator.state.topic.min.isr"] = in_sync
    return properties


def text(properties: Mapping[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())
