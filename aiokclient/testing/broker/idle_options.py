"""The options of Kafka's brokers that have no effect here: names, types, and defaults of Kafka 4.4.

Brokers describe them, and accept values for them, so that tools for Kafka's configs can be tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class NamedOption(NamedTuple):
    """An option. `default` is None if it has no default value."""

    name: str
    type: str
    is_fixed: bool
    """Whether it can only be set at the start of a broker."""
    default: str | None


# The columns: name, type, fixed or running (when it can be changed), default. Without a fourth
# column, there is no default.
_TABLE = """
add.partitions.to.txn.retry.backoff.max.ms int fixed 100
add.partitions.to.txn.retry.backoff.ms int fixed 20
advertised.listeners list fixed
alter.config.policy.class.name class fixed
alter.log.dirs.replication.quota.window.num int fixed 11
alter.log.dirs.replication.quota.window.size.seconds int fixed 1
authorizer.class.name string fixed ""
auto.leader.rebalance.enable boolean fixed true
broker.heartbeat.interval.ms int fixed 2000
broker.id int fixed -1
broker.rack string fixed
broker.session.timeout.ms int fixed 9000
client.quota.callback.class class fixed
config.providers list running ""
connection.failed.authentication.delay.ms int fixed 100
connections.max.idle.ms long fixed 600000
connections.max.reauth.ms long fixed 0
controlled.shutdown.enable boolean fixed true
controller.listener.names list fixed
controller.quorum.append.linger.ms int fixed 25
controller.quorum.auto.join.enable boolean fixed false
controller.quorum.bootstrap.servers list fixed ""
controller.quorum.election.backoff.max.ms int fixed 1000
controller.quorum.election.timeout.ms int fixed 1000
controller.quorum.fetch.max.bytes int fixed 1048576
controller.quorum.fetch.snapshot.max.bytes int fixed 1048576
controller.quorum.fetch.timeout.ms int fixed 2000
controller.quorum.request.timeout.ms int fixed 2000
controller.quorum.retry.backoff.ms int fixed 20
controller.quorum.voters list fixed ""
controller.quota.window.num int fixed 11
controller.quota.window.size.seconds int fixed 1
controller.socket.timeout.ms int fixed 30000
cordoned.log.dirs list running ""
create.topic.policy.class.name class fixed
delegation.token.expiry.check.interval.ms long fixed 3600000
delegation.token.expiry.time.ms long fixed 86400000
delegation.token.max.lifetime.ms long fixed 604800000
delegation.token.secret.key password fixed
delete.records.purgatory.purge.interval.requests int fixed 1
delete.topic.enable boolean fixed true
early.start.listeners list fixed
errors.deadletterqueue.auto.create.topics.enable boolean running false
errors.deadletterqueue.topic.name.prefix string running dlq.
fetch.max.bytes int fixed 57671680
fetch.purgatory.purge.interval.requests int fixed 1000
follower.fetch.last.tiered.offset.enable boolean running false
group.consumer.max.assignment.interval.ms int fixed 15000
group.consumer.max.heartbeat.interval.ms int fixed 15000
group.consumer.max.session.timeout.ms int fixed 60000
group.consumer.min.assignment.interval.ms int fixed 0
group.consumer.min.heartbeat.interval.ms int fixed 5000
group.consumer.min.session.timeout.ms int fixed 45000
group.coordinator.append.linger.ms int fixed -1
group.coordinator.background.threads int fixed 2
group.coordinator.cached.buffer.max.bytes int running 1048588
group.coordinator.rebalance.protocols list fixed classic,consumer,streams
group.coordinator.threads int fixed 4
group.share.assignment.interval.ms int running 1000
group.share.assignors list fixed simple
group.share.delivery.count.limit int fixed 5
group.share.heartbeat.interval.ms int fixed 5000
group.share.max.assignment.interval.ms int fixed 15000
group.share.max.delivery.count.limit int fixed 10
group.share.max.heartbeat.interval.ms int fixed 15000
group.share.max.partition.max.record.locks int fixed 4000
group.share.max.record.lock.duration.ms int fixed 60000
group.share.max.session.timeout.ms int fixed 60000
group.share.max.share.sessions int fixed 2000
group.share.max.size int fixed 200
group.share.min.assignment.interval.ms int fixed 0
group.share.min.delivery.count.limit int fixed 2
group.share.min.heartbeat.interval.ms int fixed 5000
group.share.min.partition.max.record.locks int fixed 100
group.share.min.record.lock.duration.ms int fixed 15000
group.share.min.session.timeout.ms int fixed 45000
group.share.partition.max.record.locks int fixed 2000
group.share.record.lock.duration.ms int fixed 30000
group.share.session.timeout.ms int fixed 45000
group.streams.assignment.interval.ms int running 1000
group.streams.assignors list fixed sticky
group.streams.heartbeat.interval.ms int fixed 5000
group.streams.initial.rebalance.delay.ms int fixed 3000
group.streams.max.assignment.interval.ms int fixed 15000
group.streams.max.heartbeat.interval.ms int fixed 15000
group.streams.max.session.timeout.ms int fixed 60000
group.streams.max.size int fixed 2147483647
group.streams.max.standby.replicas int fixed 2
group.streams.min.assignment.interval.ms int fixed 0
group.streams.min.heartbeat.interval.ms int fixed 5000
group.streams.min.session.timeout.ms int fixed 45000
group.streams.num.standby.replicas int fixed 0
group.streams.rack.aware.assignment.tags list fixed ""
group.streams.session.timeout.ms int fixed 45000
group.streams.topology.description.plugin.class class fixed
initial.broker.registration.timeout.ms int fixed 60000
inter.broker.listener.name string fixed
kafka.metrics.polling.interval.secs int fixed 10
kafka.metrics.reporters list fixed ""
leader.imbalance.check.interval.seconds long fixed 300
listener.security.protocol.map string running
listeners list running PLAINTEXT://:9092
log.cleaner.dedupe.buffer.size long running 134217728
log.cleaner.enable boolean fixed true
log.cleaner.io.buffer.load.factor double running 0.9
log.cleaner.io.buffer.size int running 524288
log.cleaner.io.max.bytes.per.second double running 1.7976931348623157E308
log.dir list fixed /tmp/kafka-logs
log.dir.failure.timeout.ms long fixed 30000
log.dirs list fixed
log.flush.offset.checkpoint.interval.ms int fixed 60000
log.flush.scheduler.interval.ms long fixed 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms int fixed 60000
log.initial.task.delay.ms long fixed 30000
log.remote.copy.lag.bytes long running -1
log.remote.copy.lag.ms long running 0
log.retention.check.interval.ms long fixed 300000
log.retention.hours int fixed 168
log.retention.minutes int fixed
log.roll.hours int fixed 168
log.roll.jitter.hours int fixed 0
max.connection.creation.rate int running 2147483647
max.connections.per.ip.overrides string running ""
max.decompressed.message.bytes int running 2147483639
max.request.partition.size.limit int fixed 2000
metadata.log.dir string fixed
metadata.log.max.record.bytes.between.snapshots long fixed 20971520
metadata.log.max.snapshot.interval.ms long fixed 3600000
metadata.log.segment.bytes int fixed 1073741824
metadata.log.segment.ms long fixed 604800000
metadata.max.idle.interval.ms int fixed 500
metadata.max.retention.bytes long fixed 104857600
metadata.max.retention.ms long fixed 604800000
metric.reporters list running org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples int fixed 2
metrics.recording.level string fixed INFO
metrics.sample.window.ms long fixed 30000
node.id int fixed
num.replica.alter.log.dirs.threads int fixed
offsets.commit.timeout.ms int fixed 5000
offsets.load.buffer.size int fixed 5242880
offsets.retention.check.interval.ms long fixed 600000
offsets.retention.minutes int fixed 10080
offsets.topic.compression.codec int fixed 0
offsets.topic.replication.factor short fixed 3
offsets.topic.segment.bytes int fixed 104857600
principal.builder.class class running
process.roles list fixed
producer.purgatory.purge.interval.requests int fixed 1000
queued.max.request.bytes long fixed -1
queued.max.requests int fixed 500
quota.window.num int fixed 11
quota.window.size.seconds int fixed 1
remote.fetch.max.wait.ms int running 500
remote.list.offsets.request.timeout.ms long running 30000
remote.log.index.file.cache.total.size.bytes long running 1073741824
remote.log.manager.copier.thread.pool.size int running 10
remote.log.manager.copy.max.bytes.per.second long running 9223372036854775807
remote.log.manager.copy.quota.window.num int fixed 11
remote.log.manager.copy.quota.window.size.seconds int fixed 1
remote.log.manager.expiration.thread.pool.size int running 10
remote.log.manager.fetch.max.bytes.per.second long running 9223372036854775807
remote.log.manager.fetch.quota.window.num int fixed 11
remote.log.manager.fetch.quota.window.size.seconds int fixed 1
remote.log.manager.follower.thread.pool.size int running 2
remote.log.manager.task.interval.ms long fixed 30000
remote.log.manager.thread.pool.size int fixed 2
remote.log.metadata.custom.metadata.max.bytes int fixed 128
remote.log.metadata.manager.class.name string fixed
remote.log.metadata.manager.class.path string fixed
remote.log.metadata.manager.impl.prefix string fixed rlmm.config.
remote.log.metadata.manager.listener.name string fixed
remote.log.reader.max.pending.tasks int fixed 100
remote.log.reader.threads int running 10
remote.log.storage.manager.class.name string fixed
remote.log.storage.manager.class.path string fixed
remote.log.storage.manager.impl.prefix string fixed rsm.config.
remote.log.storage.system.enable boolean fixed false
replica.fetch.backoff.ms int fixed 1000
replica.fetch.max.bytes int fixed 1048576
replica.fetch.min.bytes int fixed 1
replica.fetch.response.max.bytes int fixed 10485760
replica.fetch.wait.max.ms int fixed 500
replica.high.watermark.checkpoint.interval.ms long fixed 5000
replica.lag.time.max.ms long fixed 30000
replica.selector.class string fixed
replica.socket.receive.buffer.bytes int fixed 65536
replica.socket.timeout.ms int fixed 30000
replication.quota.window.num int fixed 11
replication.quota.window.size.seconds int fixed 1
request.timeout.ms int fixed 30000
sasl.client.callback.handler.class class fixed
sasl.enabled.mechanisms list running GSSAPI
sasl.jaas.config password running
sasl.kerberos.kinit.cmd string running /usr/bin/kinit
sasl.kerberos.min.time.before.relogin long running 60000
sasl.kerberos.principal.to.local.rules list running DEFAULT
sasl.kerberos.service.name string running
sasl.kerberos.ticket.renew.jitter double running 0.05
sasl.kerberos.ticket.renew.window.factor double running 0.8
sasl.login.callback.handler.class class fixed
sasl.login.class class fixed
sasl.login.connect.timeout.ms int fixed
sasl.login.read.timeout.ms int fixed
sasl.login.refresh.buffer.seconds short running 300
sasl.login.refresh.min.period.seconds short running 60
sasl.login.refresh.window.factor double running 0.8
sasl.login.refresh.window.jitter double running 0.05
sasl.login.retry.backoff.max.ms long fixed 10000
sasl.login.retry.backoff.ms long fixed 100
sasl.mechanism.controller.protocol string fixed GSSAPI
sasl.mechanism.inter.broker.protocol string running GSSAPI
sasl.oauthbearer.allow.unverified.audience boolean fixed false
sasl.oauthbearer.allow.unverified.issuer boolean fixed false
sasl.oauthbearer.assertion.algorithm string fixed RS256
sasl.oauthbearer.assertion.claim.aud string fixed
sasl.oauthbearer.assertion.claim.exp.seconds int fixed 300
sasl.oauthbearer.assertion.claim.iss string fixed
sasl.oauthbearer.assertion.claim.jti.include boolean fixed false
sasl.oauthbearer.assertion.claim.nbf.seconds int fixed 60
sasl.oauthbearer.assertion.claim.sub string fixed
sasl.oauthbearer.assertion.file string fixed
sasl.oauthbearer.assertion.private.key.file string fixed
sasl.oauthbearer.assertion.private.key.passphrase password fixed
sasl.oauthbearer.assertion.template.file string fixed
sasl.oauthbearer.client.credentials.client.id string fixed
sasl.oauthbearer.client.credentials.client.secret password fixed
sasl.oauthbearer.clock.skew.seconds int fixed 30
sasl.oauthbearer.expected.audience list fixed ""
sasl.oauthbearer.expected.issuer string fixed
sasl.oauthbearer.jwks.endpoint.refresh.ms long fixed 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long fixed 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long fixed 100
sasl.oauthbearer.jwks.endpoint.url string fixed
sasl.oauthbearer.jwt.retriever.class class fixed
sasl.oauthbearer.jwt.validator.class class fixed
sasl.oauthbearer.scope string fixed
sasl.oauthbearer.scope.claim.name string fixed scope
sasl.oauthbearer.sub.claim.name string fixed sub
sasl.oauthbearer.token.endpoint.url string fixed
sasl.server.callback.handler.class class fixed
sasl.server.max.receive.size int fixed 524288
security.inter.broker.protocol string fixed PLAINTEXT
security.providers string fixed
share.coordinator.append.linger.ms int fixed -1
share.coordinator.cached.buffer.max.bytes int running 1048588
share.coordinator.load.buffer.size int fixed 5242880
share.coordinator.snapshot.update.records.per.snapshot int fixed 500
share.coordinator.state.topic.compression.codec int fixed 0
share.coordinator.state.topic.min.isr short fixed 2
share.coordinator.state.topic.num.partitions int fixed 50
share.coordinator.state.topic.replication.factor short fixed 3
share.coordinator.state.topic.segment.bytes int fixed 104857600
share.coordinator.threads int fixed 1
share.coordinator.write.timeout.ms int fixed 5000
share.fetch.purgatory.purge.interval.requests int fixed 1000
socket.connection.setup.timeout.max.ms long fixed 30000
socket.connection.setup.timeout.ms long fixed 10000
socket.listen.backlog.size int fixed 50
socket.receive.buffer.bytes int fixed 102400
socket.request.max.bytes int fixed 104857600
socket.send.buffer.bytes int fixed 102400
ssl.allow.dn.changes boolean fixed false
ssl.allow.san.changes boolean fixed false
ssl.cipher.suites list running ""
ssl.client.auth string running none
ssl.enabled.protocols list running TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm string running https
ssl.engine.factory.class class running
ssl.key.password password running
ssl.keymanager.algorithm string running SunX509
ssl.keystore.certificate.chain password running
ssl.keystore.key password running
ssl.keystore.location string running
ssl.keystore.password password running
ssl.keystore.type string running JKS
ssl.principal.mapping.rules string fixed DEFAULT
ssl.protocol string running TLSv1.3
ssl.provider string running
ssl.secure.random.implementation string running
ssl.trustmanager.algorithm string running PKIX
ssl.truststore.certificates password running
ssl.truststore.location string running
ssl.truststore.password password running
ssl.truststore.type string running JKS
transaction.abort.timed.out.transaction.cleanup.interval.ms int fixed 10000
transaction.remove.expired.transaction.cleanup.interval.ms int fixed 3600000
transaction.state.log.load.buffer.size int fixed 5242880
transaction.state.log.min.isr int fixed 2
transaction.state.log.replication.factor short fixed 3
transaction.state.log.segment.bytes int fixed 104857600
transaction.two.phase.commit.enable boolean fixed false
"""

# Defaults that are too long for a line of the table.
_LONG_DEFAULTS = {
    "listener.security.protocol.map": (
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
    ),
    "principal.builder.class": (
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    ),
    "remote.log.metadata.manager.class.name": (
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
    ),
}


def read_table() -> Iterator[NamedOption]:
    """Yield all options."""
    for line in _TABLE.strip().splitlines():
        name, kind, changes, *rest = line.split(" ", 3)
        default = rest[0].strip('"') if rest else _LONG_DEFAULTS.get(name)
        yield NamedOption(name, kind, changes == "fixed", default)
