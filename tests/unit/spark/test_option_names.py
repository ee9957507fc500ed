"""The names of options in texts of errors, as a program gives them to Spark."""

import pytest

from aiokclient import Client, Consumer, Producer
from aiokclient.spark.option_names import as_in_spark, option_names, prefixed


def test_options_are_those_of_the_signature() -> None:
    assert {"bootstrap.servers", "client.id"} <= option_names(Client)
    assert "fetch.max.bytes" in option_names(Consumer) - option_names(Client)
    assert "linger.ms" in option_names(Producer) - option_names(Client)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "delivery.timeout.ms: 1 is below linger.ms (5).",
            "kafka.delivery.timeout.ms: 1 is below kafka.linger.ms (5).",
        ),
        (
            "enable.idempotence: It needs acks='all'.",
            "kafka.enable.idempotence: It needs kafka.acks='all'.",
        ),
        (
            "url: It is not available. Pass security=SaslOAuthBearer(token_provider=...), or not.",
            "url: It is not available.",
        ),
        (
            "retries is not an option here. Retries continue until delivery_timeout_ms (producer).",
            "retries is not an option here. Retries continue until kafka.delivery.timeout.ms "
            "(producer).",
        ),
        (
            "x: It is not available. TLS uses Python's ssl module. Pass security=Tls(context=...) "
            "with an ssl.SSLContext that has this setting.",
            "x: It is not available. TLS uses Python's ssl module.",
        ),
        (
            "x is not an option here. Pass security=Tls(cafile=...), or use ssl_cafile_location.",
            "x is not an option here. Use kafka.ssl.cafile.location.",
        ),
        (
            "x is not an option here. Pass a function as partitioner=. The default is murmur2.",
            "x is not an option here. The default is murmur2.",
        ),
        ("x: 'ssl_plain' is not allowed.", None),
        # Names that are not options of clients, and a common word that is also an option.
        ("Raise group.min.session.timeout.ms. Further acks are of no use.", None),
        ("kafka.client.id is missing.", None),
        ("broker-1.client.id:9092 did not respond.", None),
    ],
)
def test_names_of_properties_get_the_prefix(text: str, shown: str | None) -> None:
    assert prefixed(text, ()) == (shown or text)


@pytest.mark.parametrize("name", ["acks", "linger.msx"])
def test_name_that_was_given_gets_the_prefix_at_the_start(name: str) -> None:
    assert prefixed(f"{name}: '7' is wrong.", [name]) == f"kafka.{name}: '7' is wrong."
    assert prefixed(f"{name} is not an option.", [name]) == f"kafka.{name} is not an option."


def test_names_of_arguments_get_dots_and_the_prefix() -> None:
    assert as_in_spark("Raise max_request_size, or max.message.bytes of the topic.") == (
        "Raise kafka.max.request.size, or max.message.bytes of the topic."
    )
    others = "The broker aborts it after transaction.timeout.ms. Consumer.client_id is None."
    assert as_in_spark(others) == others
