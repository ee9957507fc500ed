"""Tests that messages know which of their fields are secret, and never show them."""

import re
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from aiokclient.errors import KafkaError
from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.api import request_class
from aiokclient.protocol.fields import Field, Scalar
from aiokclient.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from aiokclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
)

SECRET = "hunter2"
SUSPICIOUS = re.compile("password|secret|salt|hmac|token|credential|auth|^value$|key")


def structs(cls: Any, path: str) -> Iterator[tuple[str, Any, Field]]:
    """Yield each field of a message, with the struct that it is in."""
    for field in cls._fields:
        yield f"{path}.{field.name}", cls, field
        if not isinstance(field.element, Scalar):
            yield from structs(field.element, f"{path}.{field.name}")


def all_fields() -> list[tuple[str, Any, Field]]:
    found = []
    for key in ApiKey:
        for cls in (request_class(key), request_class(key).response_class):
            found += list(structs(cls, cls.__name__))
    return found


FIELDS = all_fields()
SECRETS = [(path, cls, field) for path, cls, field in FIELDS if field.secret]
ALLOWED = re.compile(
    r"token_id$|token_requester|\.tokens$|credential_infos$|authorized_operations$|api_key"
    r"|\.key$|_keys$|is_future_key$|key_type$|api_keys|entity|coordinator|\.values?$"
)


def text_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


def refusal(message: Any, version: int) -> KafkaError | None:
    """Return the error with which a message cannot be encoded, or None."""
    try:
        message.encode(version)
    except KafkaError as error:
        return error
    return None


def test_fields_with_suspicious_names_are_secret_or_known_to_be_harmless() -> None:
    open_ones = [
        path
        for path, _, field in FIELDS
        if SUSPICIOUS.search(field.name) and not field.secret and not ALLOWED.search(path)
    ]
    assert not open_ones


def test_known_secrets_are_secret() -> None:
    paths = {path for path, _, _ in SECRETS}
    assert paths >= {
        "SaslAuthenticateRequest.auth_bytes",
        "SaslAuthenticateResponse.auth_bytes",
        "AlterUserScramCredentialsRequest.upsertions.salt",
        "AlterUserScramCredentialsRequest.upsertions.salted_password",
        "CreateDelegationTokenResponse.hmac",
        "DescribeDelegationTokenResponse.tokens.hmac",
        "RenewDelegationTokenRequest.hmac",
        "ExpireDelegationTokenRequest.hmac",
        "AlterConfigsRequest.resources.configs.value",
        "IncrementalAlterConfigsRequest.resources.configs.value",
        "DescribeConfigsResponse.results.configs.value",
        "DescribeConfigsResponse.results.configs.synonyms.value",
        "CreateTopicsRequest.topics.configs.value",
        "CreateTopicsResponse.topics.configs.value",
    }


@pytest.mark.parametrize(("path", "cls", "field"), SECRETS, ids=[path for path, *_ in SECRETS])
@pytest.mark.parametrize(
    "value",
    [SECRET, SECRET.encode(), [SECRET], {"a": SECRET}, (SECRET,), f"{SECRET}\ud800", 5],
    ids=["str", "bytes", "list", "dict", "tuple", "surrogate", "int"],
)
def test_secret_is_not_shown_when_it_has_any_type(
    path: str, cls: Any, field: Field, value: Any
) -> None:
    struct = cls(**{field.name: value})
    assert SECRET not in repr(struct)
    if hasattr(cls, "encode"):
        for version in range(cls.min_version, cls.max_version + 1):
            error = refusal(struct, version)
            if error is not None:
                assert SECRET not in text_of(error)
                assert field.name in str(error)


@pytest.mark.parametrize(
    "message",
    [
        messages.SaslAuthenticateRequest(auth_bytes=SECRET),  # type: ignore[arg-type]
        messages.AlterUserScramCredentialsRequest(
            upsertions=[ScramCredentialUpsertion(name="a", salt=b"", salted_password=SECRET)]  # type: ignore[arg-type]
        ),
        messages.AlterUserScramCredentialsRequest(
            upsertions=[{"salted_password": SECRET}]  # type: ignore[list-item]
        ),
        messages.AlterUserScramCredentialsRequest(
            upsertions={"salted_password": SECRET}  # type: ignore[arg-type]
        ),
        messages.AlterUserScramCredentialsRequest(upsertions=SECRET),  # type: ignore[arg-type]
        messages.IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    configs=[AlterableConfig(name="p", value=[SECRET])]  # type: ignore[arg-type]
                )
            ]
        ),
        messages.IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(configs=[(SECRET,)])]  # type: ignore[list-item]
        ),
        messages.ExpireDelegationTokenRequest(hmac=SECRET),  # type: ignore[arg-type]
        messages.ProduceRequest(
            topic_data=[
                messages.produce.TopicProduceData(
                    partition_data=[messages.produce.PartitionProduceData(records=SECRET)]  # type: ignore[arg-type]
                )
            ]
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_message_that_cannot_be_encoded_does_not_show_its_secrets(message: Any) -> None:
    for version in range(message.min_version, message.max_version + 1):
        with pytest.raises(KafkaError, match=type(message).__name__) as caught:
            message.encode(version)
        assert SECRET not in text_of(caught.value)
    assert SECRET not in repr(message)


def test_unknown_tags_are_not_shown() -> None:
    message = messages.SaslAuthenticateRequest()
    message.unknown_tags = {7: SECRET.encode()}
    assert SECRET not in repr(message)
    assert "7" in repr(message)


def test_value_that_is_not_secret_is_named_when_it_cannot_be_encoded() -> None:
    message = messages.FindCoordinatorRequest(key_type="group")  # type: ignore[arg-type]
    with pytest.raises(KafkaError, match="key_type is 'group', which does not fit the type int8"):
        message.encode(3)
