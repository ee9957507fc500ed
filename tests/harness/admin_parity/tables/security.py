"""Scenarios about ACLs, SCRAM credentials, delegation tokens, and quotas."""

from admin_parity.scenario import Scenario, allowed, credential, quota, token
from aiokclient.admin import AclOperation

ANY = ["ANY", None, "ANY", None, "ANY", "ANY", None]
TIMES = ("tokenId", "hmacAsBase64String", "issueTimestamp", "expiryTimestamp", "maxTimestamp")
WRONG_HMAC = "AAAA"
HOUR_MS = 3_600_000


ROWS = (
    Scenario(
        "createAcls",
        "made, and refused",
        {
            "acls": [
                ["TOPIC", "$t", "LITERAL", "User:bob", "READ", "ALLOW", "*"],
                ["GROUP", "$g", "PREFIXED", "User:bob", "READ", "DENY", "127.0.0.1"],
                ["CLUSTER", "kafka-cluster", "LITERAL", "User:$u", "ALTER", "ALLOW", "*"],
                ["CLUSTER", "$other", "LITERAL", "User:bob", "ALTER", "ALLOW", "*"],
                ["TOPIC", "", "LITERAL", "User:bob", "READ", "ALLOW", "*"],
                ["TOPIC", "$t", "LITERAL", "User:bob", "CLUSTER_ACTION", "ALLOW", "*"],
            ]
        },
        then=("describeAcls", {"filter": ["TOPIC", "$t", "ANY", None, "ANY", "ANY", None]}),
    ),
    Scenario(
        "createAcls",
        "without permission",
        {"acls": [["TOPIC", "$t", "LITERAL", "User:bob", "READ", "ALLOW", "*"]]},
        client="alice",
    ),
    Scenario("describeAcls", "all", {"filter": ANY}, (allowed("$t", user="bob"),), True),
    Scenario(
        "describeAcls",
        "of a principal and a name",
        {"filter": ["TOPIC", "$t", "MATCH", "User:bob", "ANY", "ALLOW", None]},
        (
            allowed("$t", user="bob"),
            allowed("$t", AclOperation.WRITE, "bob"),
            allowed("$other", user="bob"),
        ),
        True,
    ),
    Scenario("describeAcls", "without permission", {"filter": ANY}, (), True, client="alice"),
    Scenario(
        "deleteAcls",
        "of two filters, one of which finds nothing",
        {
            "filters": [
                ["TOPIC", "$t", "LITERAL", None, "ANY", "ANY", None],
                ["TOPIC", "$absent", "LITERAL", None, "ANY", "ANY", None],
            ]
        },
        (allowed("$t", user="bob"), allowed("$t", AclOperation.WRITE, "bob")),
        then=("describeAcls", {"filter": ["TOPIC", "$t", "ANY", None, "ANY", "ANY", None]}),
    ),
    Scenario("deleteAcls", "without permission", {"filters": [ANY]}, client="alice"),
    Scenario("describeUserScramCredentials", "all", {}, (credential("$u"),), True),
    Scenario(
        "describeUserScramCredentials",
        "of two users, one of whom is unknown",
        {"users": ["$u", "$absent"]},
        (credential("$u"),),
        True,
    ),
    Scenario("describeUserScramCredentials", "without permission", {}, (), True, client="alice"),
    Scenario(
        "describeUserScramCredentials",
        "of a user, without permission",
        {"users": ["$u"]},
        (credential("$u"),),
        True,
        client="alice",
    ),
    Scenario(
        "alterUserScramCredentials",
        "set, deleted, and refused",
        {
            "alterations": [
                ["$new", "SCRAM_SHA_256", 4096, "a-password"],
                ["$u", "SCRAM_SHA_512"],
                ["$absent", "SCRAM_SHA_256"],
                ["$many", "SCRAM_SHA_256", 20_000, "a-password"],
                ["$twice", "SCRAM_SHA_256", 4096, "a"],
                ["$twice", "SCRAM_SHA_256", 4096, "b"],
            ]
        },
        (credential("$u"),),
        then=("describeUserScramCredentials", {"users": ["$new", "$u", "$many"]}),
    ),
    Scenario(
        "alterUserScramCredentials",
        "without permission",
        {"alterations": [["$new", "SCRAM_SHA_256", 4096, "a-password"]]},
        client="alice",
    ),
    Scenario(
        "createDelegationToken",
        "of its own",
        {"renewers": ["User:bob"], "maxLifetimeMs": HOUR_MS},
        client="alice",
        varies=TIMES,
    ),
    Scenario("createDelegationToken", "without a login", {"renewers": []}),
    Scenario(
        "createDelegationToken",
        "for another, without permission",
        {"renewers": [], "owner": "User:bob"},
        client="alice",
    ),
    Scenario(
        "createDelegationToken",
        "with a renewer that is no user",
        {"renewers": ["Robot:bob"]},
        client="alice",
    ),
    Scenario("describeDelegationToken", "of its own", {}, (token(),), True, client="alice"),
    Scenario(
        "describeDelegationToken",
        "of owners",
        {"owners": ["User:bob"]},
        (token(),),
        True,
        client="alice",
    ),
    Scenario("describeDelegationToken", "without a login", {}, (), True),
    Scenario(
        "renewDelegationToken",
        "for an hour",
        {"hmac": "$=hmac", "periodMs": HOUR_MS},
        (token(),),
        client="alice",
        varies=("value",),
    ),
    Scenario(
        "renewDelegationToken",
        "that does not exist",
        {"hmac": WRONG_HMAC, "periodMs": HOUR_MS},
        client="alice",
    ),
    Scenario("renewDelegationToken", "without a login", {"hmac": WRONG_HMAC, "periodMs": 1}),
    Scenario(
        "expireDelegationToken",
        "in an hour",
        {"hmac": "$=hmac", "periodMs": HOUR_MS},
        (token(),),
        client="alice",
        varies=("value",),
    ),
    Scenario(
        "expireDelegationToken",
        "that does not exist",
        {"hmac": WRONG_HMAC, "periodMs": -1},
        client="alice",
    ),
    Scenario("expireDelegationToken", "without a login", {"hmac": WRONG_HMAC, "periodMs": -1}),
    Scenario(
        "describeClientQuotas",
        "of a user",
        {"components": [["user", "$u"]], "strict": True},
        (quota("$u", producer_byte_rate=1000.0, consumer_byte_rate=2000.0),),
        True,
    ),
    Scenario(
        "describeClientQuotas",
        "of each user",
        {"components": [["user"]]},
        (quota("$u", producer_byte_rate=1000.0),),
        True,
    ),
    Scenario(
        "describeClientQuotas",
        "of an address and a user",
        {"components": [["user", "$u"], ["ip", "127.0.0.1"]]},
        reads=True,
    ),
    Scenario("describeClientQuotas", "all", {"components": []}, (), True),
    Scenario(
        "describeClientQuotas", "without permission", {"components": []}, (), True, client="alice"
    ),
    Scenario(
        "alterClientQuotas",
        "set, removed, and refused",
        {
            "changes": [
                [{"user": "$new"}, [["producer_byte_rate", 1000.0]]],
                [{"user": "$new", "client-id": None}, [["request_percentage", 50.0]]],
                [{"client-id": "$c"}, [["controller_mutation_rate", 100.0]]],
                [{"user": "$u"}, [["producer_byte_rate", None]]],
                [{"user": "$wrong"}, [["nope", 1.0]]],
                [{"user": "$zero"}, [["producer_byte_rate", 0.0]]],
                [{"user": "$half"}, [["producer_byte_rate", 0.5]]],
                [{"ip": "$no address"}, [["connection_creation_rate", 1.0]]],
                [{"user": "$mixed", "ip": "127.0.0.1"}, [["producer_byte_rate", 1.0]]],
            ]
        },
        (quota("$u", producer_byte_rate=1000.0),),
        then=("describeClientQuotas", {"components": [["user", "$new"]]}),
    ),
    Scenario(
        "alterClientQuotas",
        "only checked",
        {
            "changes": [
                [{"user": "$new"}, [["producer_byte_rate", 1000.0]]],
                [{"user": "$wrong"}, [["nope", 1.0]]],
            ],
            "validateOnly": True,
        },
        then=("describeClientQuotas", {"components": [["user", "$new"]]}),
    ),
    Scenario(
        "alterClientQuotas",
        "without permission",
        {"changes": [[{"user": "$new"}, [["producer_byte_rate", 1000.0]]]]},
        client="alice",
    ),
)
