"""Tests that logins, ACLs, and SCRAM credentials have the same results as on a real Kafka."""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_harness import KAFKA, KafkaCluster
from parity import Scenarios, named

from aiokclient.protocol import messages
from aiokclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from aiokclient.protocol.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokclient.protocol.messages.create_acls import AclCreation
from aiokclient.protocol.messages.create_topics import CreatableTopic
from aiokclient.protocol.messages.delete_acls import DeleteAclsFilter
from aiokclient.protocol.messages.delete_topics import DeleteTopicState
from aiokclient.protocol.messages.describe_configs import DescribeConfigsResource
from aiokclient.protocol.messages.describe_user_scram_credentials import UserName
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from aiokclient.protocol.messages.metadata import MetadataRequestTopic
from aiokclient.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokclient.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
from aiokclient.testing import BrokerListener, EmbeddedCluster, unsecured_token

pytestmark = pytest.mark.timeout(600)

SCENARIOS = Scenarios()
scenario = SCENARIOS.add
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURITY = "org.apache.kafka.common.security."
# A broker may remember what a user was allowed, so that each scenario has a user of its own.
RULED = ("unruled", "reader", "writer", "describer", "limited", "prefixed")
USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
USERS |= dict.fromkeys(RULED, "secret")
JAAS = {
    "plain": SECURITY
    + 'plain.PlainLoginModule required username="admin" password="admin-secret" '
    + "".join(f' user_{user}="{password}"' for user, password in USERS.items())
    + ";",
    "scram-sha-256": SECURITY + "scram.ScramLoginModule required;",
    "scram-sha-512": SECURITY + "scram.ScramLoginModule required;",
    "oauthbearer": SECURITY
    + 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";',
}
MECHANISMS = tuple(name.upper() for name in JAAS)
REAUTH_MS = 20_000
CONFIGS = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS;User:admin"}
SHA_256, SHA_512 = 1, 2


def secured(listener: str) -> dict[str, object]:
    """Return the properties of a listener with all mechanisms."""
    prefix = f"listener.name.{listener.lower()}."
    found: dict[str, object] = {prefix + "sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    for name, text in JAAS.items():
        found[f"{prefix}{name}.sasl.jaas.config"] = text
        if listener == "REAUTH":
            found[f"{prefix}{name}.connections.max.reauth.ms"] = REAUTH_MS
    return found


@pytest.fixture(scope="module")
def secure_kafka(java: str) -> Iterator[KafkaCluster]:
    listeners = dict.fromkeys(("SASL", "REAUTH"), "SASL_PLAINTEXT")
    properties = CONFIGS | {"delegation.token.secret.key": "a-test-secret"}
    for name in listeners:
        properties |= secured(name)
    with KafkaCluster(KAFKA, properties=properties, listeners=listeners) as cluster:
        yield cluster


class Place:
    """One broker: connections to its listeners, and names that no other scenario uses."""

    _numbers = itertools.count()

    def __init__(self, wire: Any, raw: Any, address_of: Callable[[str], tuple[str, int]]) -> None:
        self._wire, self._raw, self._address_of = wire, raw, address_of
        self.batch = wire.batch
        self.admin = wire.at(address_of("PLAINTEXT"))
        self._remove_acls()

    def _remove_acls(self) -> None:
        """Remove the rules of other scenarios, and wait until the broker has applied that."""
        values = {"resource_type_filter": 1, "pattern_type_filter": 1}
        values |= {"operation": 1, "permission_type": 1}
        wanted = DeleteAclsFilter(**values)
        self.admin.request(messages.DeleteAclsRequest(filters=[wanted]))
        while self.admin.request(messages.DescribeAclsRequest(**values)).resources:
            pass

    def login(self, listener: str = "SASL") -> Any:
        """Return a connection that has not logged in."""
        return self._raw(self._wire.at(self._address_of(listener)))

    def attempt(self, mechanism: str, user: str, password: str) -> str:
        return named(self.login().log_in(mechanism, user, password).error_code)

    def as_user(self, user: str) -> Any:
        """Return a connection of a user."""
        login = self.login()
        assert login.log_in("PLAIN", user, USERS[user]).error_code == 0
        return login.connection

    def name(self) -> str:
        return f"parity-{next(self._numbers)}-{uuid.uuid4().hex[:6]}"

    def topic(self) -> tuple[str, uuid.UUID]:
        topic = CreatableTopic(name=self.name(), num_partitions=1, replication_factor=1)
        (made,) = self.admin.request(messages.CreateTopicsRequest(topics=[topic])).topics
        assert made.error_code == 0
        while self.admin.list_offset(topic.name, -1).error_code:
            pass
        return topic.name, made.topic_id

    def acl(self, name: str, **options: Any) -> Any:
        """Create an ACL for alice and return the result."""
        values = {
            "resource_type": 2,
            "resource_pattern_type": 3,
            "principal": "User:alice",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        }
        creation = AclCreation(resource_name=name, **(values | options))
        request = messages.CreateAclsRequest(creations=[creation])
        try:
            (result,) = self.admin.request(request).results
        except EOFError:
            self.admin = self._wire.at(self._address_of("PLAINTEXT"))
            return "closed"
        if not result.error_code:
            self._await_acl(creation)
        return named(result.error_code), result.error_message or ""

    def _await_acl(self, created: AclCreation) -> None:
        """Wait until the broker applies an ACL."""
        wanted = messages.DescribeAclsRequest(
            resource_type_filter=created.resource_type,
            resource_name_filter=created.resource_name,
            pattern_type_filter=created.resource_pattern_type,
            principal_filter=created.principal,
            host_filter=created.host,
            operation=created.operation,
            permission_type=created.permission_type,
        )
        while not self.admin.request(wanted).resources:
            pass

    def scram_user(self, name: str, password: str, mechanism: int, **options: Any) -> Any:
        """Create a user and return the result."""
        algorithm = {SHA_256: "sha256", SHA_512: "sha512"}.get(mechanism, "sha256")
        iterations = options.get("iterations", 4096)
        salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), b"salt", iterations)
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=iterations,
            salt=b"salt",
            salted_password=salted,
        )
        request = messages.AlterUserScramCredentialsRequest(upsertions=[upsertion])
        (result,) = self.admin.request(request).results
        return named(result.error_code), result.error_message


def said(answer: Any) -> tuple[str, str | None, bytes]:
    """Return what a broker says to a message of a mechanism."""
    return named(answer.error_code), answer.error_message, bytes(answer.auth_bytes)


def outcome(login: Any, *messages_: bytes) -> list[object]:
    """Send messages and return the answers, and whether the connection was closed then."""
    answers: list[object] = []
    for message in messages_:
        try:
            answer = login.send(message)
        except EOFError:
            return [*answers, message, "closed"]
        answers.append(said(answer))
        if answer.error_code:
            return [*answers, login.connection.closed()]
    return answers


@scenario
def plain_logins(place: Place) -> list[object]:
    found: list[object] = []
    for message in (
        b"\0alice\0alice-secret",
        b"alice\0alice\0alice-secret",
        b"bob\0alice\0alice-secret",
        b"\0alice\0wrong",
        b"\0nobody\0wrong",
        b"\0alice\0",
        b"\0\0alice-secret",
        b"alice\0alice-secret",
        b"\0alice\0alice-secret\0",
        b"",
        b"\xff\0alice\0alice-secret",
    ):
        login = place.login()
        login.handshake("PLAIN")
        found.append(outcome(login, message))
    return found


@scenario
def scram_logins(place: Place) -> list[object]:
    found: list[object] = []
    for mechanism, number in (("SCRAM-SHA-256", SHA_256), ("SCRAM-SHA-512", SHA_512)):
        user = place.name()
        found.append(place.scram_user(user, "wonderland", number))
        # A new user reaches the broker a moment later.
        while place.attempt(mechanism, user, "wonderland") != "ok":
            pass
        found.append(place.attempt(mechanism, user, "wrong"))
        found.append(place.attempt(mechanism, "nobody", "wonderland"))
        for message in (
            b"",
            b"garbage",
            b"y,,n=alice,r=abc",
            b"p=tls-unique,,n=alice,r=abc",
            b"n,,n=,r=abc",
            b"n,,n=nobody,r=abc",
            f"n,a=other,n={user},r=abc".encode(),
            f"n,,m=ext,n={user},r=abc".encode(),
            f"n,,n={user},r=abc,tokenauth=true".encode(),
        ):
            login = place.login()
            login.handshake(mechanism)
            found.append([message.replace(user.encode(), b"U")])
            try:
                answer = login.send(message)
                found.append((named(answer.error_code), answer.error_message))
            except EOFError:
                found.append("closed")
        for final in (b"", b"garbage", b"c=biws,r=abc,p=AAAA"):
            login = place.login()
            login.handshake(mechanism)
            assert login.send(f"n,,n={user},r=abc".encode()).error_code == 0
            found.append(outcome(login, final))
    return found


@scenario
def token_logins(place: Place) -> list[object]:
    good = unsecured_token("alice", iat=1_000_000_000, exp=4_000_000_000)
    found: list[object] = []
    for message in (
        f"n,,\x01auth=Bearer {good}\x01\x01",
        f"n,a=alice,\x01auth=Bearer {good}\x01\x01",
        f"n,a=bob,\x01auth=Bearer {good}\x01\x01",
        f"n,,\x01auth=bearer {good}\x01key=value\x01\x01",
        f"n,,\x01auth={good}\x01\x01",
        "n,,\x01key=value\x01\x01",
        f"n,,auth=Bearer {good}\x01\x01",
        "",
        "garbage",
    ):
        login = place.login()
        login.handshake("OAUTHBEARER")
        found.append(outcome(login, message.encode()))
    for token in (
        unsecured_token("alice", iat=1_000_000_000, exp=1_000_000_001),
        unsecured_token("alice", iat=4_000_000_001, exp=4_000_000_002),
        unsecured_token("alice", iat=4_000_000_000, exp=3_999_999_999),
        unsecured_token("alice", exp="soon"),
        unsecured_token("alice", exp=None),
        unsecured_token("", exp=4_000_000_000),
        "a.b.c",
        "abc",
        good + "AAAA",
    ):
        login = place.login()
        login.handshake("OAUTHBEARER")
        message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        found.append(outcome(login, message, b"\x01"))
    return found


@scenario
def steps_of_a_login(place: Place) -> list[object]:
    found: list[object] = []
    login = place.login()
    answer = login.handshake("NOTHING")
    found += [named(answer.error_code), sorted(answer.mechanisms), login.connection.closed()]
    login = place.login()
    answer = login.handshake("PLAIN")
    found += [named(answer.error_code), sorted(answer.mechanisms)]
    versions = messages.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    for count in (1, 2):
        login = place.login()
        for _ in range(count):
            login.connection.send(versions)
        found.append(named(login.connection.receive().error_code))
        if count > 1:
            found.append(login.connection.closed())
    login = place.login()
    login.connection.send(messages.MetadataRequest(topics=[]))
    found.append(login.connection.closed())
    login = place.login()
    login.connection.send(messages.SaslAuthenticateRequest(auth_bytes=b"\0a\0b"))
    found.append(login.connection.closed())
    connection = place.as_user("alice")
    found.append(
        named(connection.request(messages.SaslHandshakeRequest(mechanism="PLAIN")).error_code)
    )
    answer = connection.request(messages.SaslAuthenticateRequest(auth_bytes=b""))
    found += [named(answer.error_code), answer.error_message]
    found.append(named(connection.request(messages.ListGroupsRequest()).error_code))
    found.append(
        named(place.admin.request(messages.SaslHandshakeRequest(mechanism="PLAIN")).error_code)
    )
    answer = place.admin.request(messages.SaslAuthenticateRequest(auth_bytes=b""))
    found.append(named(answer.error_code))
    return found


@scenario
def logins_without_headers(place: Place) -> list[object]:
    found: list[object] = []
    for message in (b"\0alice\0alice-secret", b"\0alice\0wrong"):
        login = place.login()
        found.append(named(login.handshake("PLAIN", version=0).error_code))
        login.connection.socket.sendall(len(message).to_bytes(4, "big") + message)
        try:
            found.append(login.connection._read(4))
        except EOFError:
            found.append("closed")
            continue
        found.append(named(login.connection.request(messages.ListGroupsRequest()).error_code))
    return found


@scenario
def renewals(place: Place) -> list[object]:
    found: list[object] = []
    for version in (0, 1, 2):
        login = place.login("REAUTH")
        login.handshake("PLAIN")
        answer = login.send(b"\0alice\0alice-secret", version=version)
        found.append((named(answer.error_code), answer.session_lifetime_ms))
    for mechanism, message in (
        ("PLAIN", b"\0alice\0alice-secret"),
        ("PLAIN", b"\0bob\0bob-secret"),
        ("PLAIN", b"\0alice\0wrong"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=abc"),
        ("NOTHING", b""),
    ):
        login = place.login("REAUTH")
        login.log_in("PLAIN", "alice", "alice-secret")
        try:
            answer = login.handshake(mechanism)
        except EOFError:
            found += [mechanism, "closed"]
            continue
        found += [named(answer.error_code), sorted(answer.mechanisms)]
        if answer.error_code:
            found.append(login.connection.closed())
        else:
            found += outcome(login, message)
    # The first request after a renewal belongs to the same principal.
    login = place.login("REAUTH")
    login.log_in("PLAIN", "alice", "alice-secret")
    login.log_in("PLAIN", "alice", "alice-secret")
    found.append(named(login.handshake("PLAIN").error_code))
    found.append(named(login.connection.request(messages.ListGroupsRequest()).error_code))
    return found


@scenario
def scram_credentials(place: Place) -> list[object]:
    user = place.name()
    found: list[object] = [
        place.scram_user(user, "x", SHA_256),
        place.scram_user(user, "x", SHA_512, iterations=8192),
        place.scram_user(user, "x", 0),
        place.scram_user(user, "x", 3),
        place.scram_user("", "x", SHA_256),
        place.scram_user(user, "x", SHA_256, iterations=4095),
        place.scram_user(user, "x", SHA_256, iterations=16_385),
    ]

    def described(*names: str) -> list[object]:
        users = [UserName(name=name) for name in names]
        answer = place.admin.request(messages.DescribeUserScramCredentialsRequest(users=users))
        return sorted(
            (
                each.user.replace(user, "U"),
                named(each.error_code),
                (each.error_message or "").replace(user, "U"),
                sorted((info.mechanism, info.iterations) for info in each.credential_infos),
            )
            for each in answer.results
        )

    def removed(*pairs: tuple[str, int]) -> list[object]:
        deletions = [ScramCredentialDeletion(name=name, mechanism=number) for name, number in pairs]
        answer = place.admin.request(messages.AlterUserScramCredentialsRequest(deletions=deletions))
        return [
            (each.user.replace(user, "U"), named(each.error_code), each.error_message)
            for each in answer.results
        ]

    found += [described(user), described(user, user), described("nobody"), described(user, "no")]
    found += [removed(("nobody", SHA_256)), removed((user, SHA_256), (user, SHA_256))]
    found += [removed((user, SHA_256)), removed((user, 9)), described(user)]
    found += [removed((user, SHA_512)), described(user)]
    return found


@scenario
def acl_requests(place: Place) -> list[object]:
    name = place.name()
    found: list[object] = [
        place.acl(name),
        place.acl(name),
        place.acl(name, permission_type=2, operation=4),
        place.acl(name[:-2], resource_pattern_type=4),
        place.acl(""),
        place.acl("other", resource_type=4),
        place.acl(name, resource_type=0),
        place.acl(name, resource_type=1),
        place.acl(name, resource_pattern_type=1),
        place.acl(name, resource_pattern_type=2),
        place.acl(name, operation=1),
        place.acl(name, operation=0),
        place.acl(name, permission_type=1),
        place.acl(name, principal="alice"),
    ]

    def described(connection: Any, **options: Any) -> list[object]:
        values = {
            "resource_type_filter": 1,
            "resource_name_filter": name,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        }
        answer = connection.request(messages.DescribeAclsRequest(**(values | options)))
        rules = sorted(
            (
                resource.resource_type,
                resource.resource_name.replace(name[:-2], "N"),
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in answer.resources
            for acl in resource.acls
            if resource.resource_name.startswith(name[:-2])
        )
        return [named(answer.error_code), *rules]

    found += [
        described(place.admin),
        described(place.admin, pattern_type_filter=2),
        described(place.admin, pattern_type_filter=3),
        described(place.admin, pattern_type_filter=4),
        described(place.admin, operation=4),
        described(place.admin, permission_type=3),
        described(place.admin, principal_filter="User:bob"),
        described(place.admin, host_filter="*"),
        described(place.admin, resource_name_filter=None),
        described(place.admin, resource_type_filter=3),
        described(place.as_user("alice")),
    ]
    wanted = DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter=name,
        pattern_type_filter=2,
        operation=1,
        permission_type=1,
    )
    for connection in (place.as_user("alice"), place.admin, place.admin):
        answer = connection.request(messages.DeleteAclsRequest(filters=[wanted]))
        (result,) = answer.filter_results
        found.append((named(result.error_code), len(result.matching_acls)))
    creation = AclCreation(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    alice = place.as_user("alice")
    (result,) = alice.request(messages.CreateAclsRequest(creations=[creation])).results
    return [*found, named(result.error_code)]


def asked_by(place: Place, connection: Any, topic: str, topic_id: uuid.UUID) -> dict[str, object]:
    """Send one request of each kind, and return the results."""
    group = transactional_id = topic
    request = connection.request
    produced = messages.ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=0, records=place.batch(b"x"))],
            )
        ],
    )
    listed = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    by_name = MetadataRequestTopic(name=topic)
    by_id = MetadataRequestTopic(name=None, topic_id=topic_id)
    missing = MetadataRequestTopic(name=topic + "-missing")
    commit = OffsetCommitRequestTopic(
        name=topic, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    )
    offsets = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    everything = OffsetFetchRequestGroup(group_id=group, topics=None)
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")

    def metadata(*topics: MetadataRequestTopic) -> list[object]:
        answer = request(messages.MetadataRequest(topics=list(topics))).topics
        return [
            (named(each.error_code), each.name == topic, each.topic_id == topic_id)
            for each in answer
        ]

    def coordinator(kind: int) -> str:
        sought = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=[topic])
        while True:
            (found,) = request(sought).coordinators
            if found.error_code != 15:
                return named(found.error_code)

    def named_topics() -> bool:
        return topic in [
            each.name for each in request(messages.MetadataRequest(topics=None)).topics
        ]

    def described_topic() -> tuple[str, int]:
        sought = messages.MetadataRequest(
            topics=[by_name],
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        # Version 10 is the last one with the operations on the cluster.
        answer = request(sought, 10)
        operations = answer.topics[0].topic_authorized_operations
        return named(answer.topics[0].error_code), operations

    def initialized(name: str | None) -> str:
        sought = messages.InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=10_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        while True:
            code = request(sought).error_code
            if code not in (14, 15, 16):
                return named(code)

    def fetched() -> str:
        answer = request(place._wire.fetch_request(topic_id))
        return named(answer.responses[0].partitions[0].error_code)

    added = messages.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic)
    broker = DescribeConfigsResource(resource_type=4, resource_name="1")
    created = CreatableTopic(name=topic + "-new", num_partitions=1, replication_factor=1)
    deleted = DeleteTopicState(name=topic + "-new")
    committed = messages.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, topics=[commit]
    )
    return {
        "produce": named(request(produced).responses[0].partition_responses[0].error_code),
        "fetch": fetched(),
        "list offsets": named(
            request(messages.ListOffsetsRequest(replica_id=-1, topics=[listed]))
            .topics[0]
            .partitions[0]
            .error_code
        ),
        "metadata": [metadata(by_name), metadata(by_id), metadata(missing), named_topics()],
        "operations": described_topic(),
        "coordinators": [coordinator(0), coordinator(1)],
        "join": named(
            request(
                messages.JoinGroupRequest(
                    group_id=group,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    member_id="",
                    protocol_type="consumer",
                    protocols=[protocol],
                ),
                5,
            ).error_code
        ),
        "heartbeat": named(
            request(
                messages.HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
            ).error_code
        ),
        "leave": named(request(messages.LeaveGroupRequest(group_id=group)).error_code),
        "commit": named(request(committed, 9).topics[0].partitions[0].error_code),
        "offsets": [
            (
                named(each.error_code),
                [named(part.error_code) for one in each.topics for part in one.partitions],
            )
            for each in request(messages.OffsetFetchRequest(groups=[offsets, everything]), 9).groups
        ],
        "init": [initialized(None), initialized(transactional_id)],
        "add": [
            named(part.partition_error_code)
            for one in request(added, 3).results_by_topic_v3_and_below
            for part in one.results_by_partition
        ],
        "configs": [
            named(each.error_code)
            for each in request(
                messages.DescribeConfigsRequest(resources=[resource, broker])
            ).results
        ],
        "create": [
            (named(each.error_code), each.error_message if each.error_code else None)
            for each in request(
                messages.CreateTopicsRequest(timeout_ms=9_000, topics=[created])
            ).topics
        ],
        "delete": [
            named(each.error_code)
            for each in request(
                messages.DeleteTopicsRequest(timeout_ms=9_000, topics=[deleted])
            ).responses
        ],
        "groups": [
            named(each.error_code)
            for each in request(messages.DescribeGroupsRequest(groups=[group]), 5).groups
        ],
    }


def with_rules(place: Place, user: str, *rules: dict[str, Any]) -> dict[str, object]:
    topic, topic_id = place.topic()
    for rule in rules:
        values = {"principal": f"User:{user}"} | rule
        assert place.acl(values.pop("name", topic), **values) == ("ok", "")
    return asked_by(place, place.as_user(user), topic, topic_id)


TOPIC, GROUP, CLUSTER, TRANSACTION = 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, DESCRIBE = 2, 3, 4, 5, 6, 8
DENY = 2


@scenario
def a_client_without_any_rule(place: Place) -> dict[str, object]:
    return with_rules(place, "unruled")


@scenario
def a_client_that_may_read(place: Place) -> dict[str, object]:
    return with_rules(
        place,
        "reader",
        {"resource_type": TOPIC, "operation": READ},
        {"resource_type": GROUP, "operation": READ},
    )


@scenario
def a_client_that_may_write(place: Place) -> dict[str, object]:
    return with_rules(
        place,
        "writer",
        {"resource_type": TOPIC, "operation": WRITE},
        {"resource_type": TRANSACTION, "operation": WRITE},
    )


@scenario
def a_client_that_may_describe(place: Place) -> dict[str, object]:
    return with_rules(
        place,
        "describer",
        {"resource_type": TOPIC, "operation": DESCRIBE},
        {"resource_type": GROUP, "operation": DESCRIBE},
        {"resource_type": TRANSACTION, "operation": DESCRIBE},
    )


@scenario
def a_client_that_may_do_everything_but_read(place: Place) -> dict[str, object]:
    return with_rules(
        place,
        "limited",
        {"resource_type": TOPIC, "operation": ALL},
        {"resource_type": TOPIC, "operation": READ, "permission_type": DENY},
    )


@scenario
def a_client_that_may_create_and_delete_by_prefix(place: Place) -> dict[str, object]:
    topic, topic_id = place.topic()
    for operation in (CREATE, DELETE):
        rule = {"principal": "User:prefixed", "operation": operation}
        place.acl(topic, resource_pattern_type=4, **rule)
    return asked_by(place, place.as_user("prefixed"), topic, topic_id)


@scenario
def a_super_user(place: Place) -> dict[str, object]:
    topic, topic_id = place.topic()
    place.acl(topic, operation=ALL, permission_type=DENY, principal="User:*")
    return asked_by(place, place.as_user("admin"), topic, topic_id)


@pytest.mark.kafka
@pytest.mark.parametrize("name", SCENARIOS)
def test_results_are_those_of_kafka(
    name: str, secure_kafka: KafkaCluster, wire_to: Any, raw_login: Any
) -> None:
    def real(listener: str) -> tuple[str, int]:
        servers = secure_kafka.bootstrap
        if listener != "PLAINTEXT":
            servers = secure_kafka.listener(listener)
        host, port = servers.split(":")
        return host, int(port)

    plain = BrokerListener(mechanisms=MECHANISMS, users=USERS)
    reauth = BrokerListener(mechanisms=MECHANISMS, users=USERS, max_reauth_ms=REAUTH_MS)
    listeners = {"SASL": plain, "REAUTH": reauth}
    with EmbeddedCluster(listeners=listeners, configs=CONFIGS) as cluster:
        wire = wire_to(cluster)
        ours = SCENARIOS[name](Place(wire, raw_login, lambda each: cluster.address(1, each)))
    theirs = SCENARIOS[name](Place(wire, raw_login, real))
    keys = ours if isinstance(ours, dict) else range(min(len(ours), len(theirs)))
    different = [(key, ours[key], theirs[key]) for key in keys if ours[key] != theirs[key]]
    assert not different, "\n".join(f"{key}: {own}\n  Kafka: {its}" for key, own, its in different)
    assert len(ours) == len(theirs)
