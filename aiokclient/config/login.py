"""The options of logins that few programs need: token endpoints and Kerberos."""

from __future__ import annotations

from aiokclient.config.kinds import (
    BOOLEAN,
    OPTIONAL_PATH,
    OPTIONAL_SECRET,
    OPTIONAL_TEXT,
    POSITIVE,
    TEXT,
    Choice,
    Integer,
)
from aiokclient.config.option import OptionValues, TypedDict, option
from aiokclient.config.secret import Secret


class LoginConfig(OptionValues):
    """The options of logins, a base of `ClientConfig`.

    Most of them become part of the `security` object.
    """

    sasl_login_callback_handler_class: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The class with which Java's clients get tokens. OAuthBearerLoginCallbackHandler is "
        "accepted, and needs sasl_oauthbearer_token_endpoint_url.",
    )
    sasl_login_connect_timeout_ms: int = option(
        POSITIVE,
        10_000,
        "The time limit of connecting to the token endpoint, including TLS, in milliseconds.",
        java="no limit",
    )
    sasl_login_read_timeout_ms: int = option(
        POSITIVE,
        10_000,
        "The time limit of the response of the token endpoint, in milliseconds.",
        java="no limit",
    )
    sasl_oauthbearer_jwt_retriever_class: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The way to get tokens: DefaultJwtRetriever, ClientCredentialsJwtRetriever, "
        "JwtBearerJwtRetriever, or FileJwtRetriever, with or without their Java package.",
        java="DefaultJwtRetriever",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = option(
        OPTIONAL_PATH,
        None,
        "The URL of the token endpoint. With file:, it is the path of a file with a token.",
    )
    sasl_oauthbearer_token_provider: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The name of an async function without arguments that returns an OAuthToken, as "
        "module:function. It is imported in each process that connects.",
        java="no such option",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The client id for the token endpoint, instead of clientId in sasl_jaas_config.",
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = option(
        OPTIONAL_SECRET,
        None,
        "The client's secret for the token endpoint, instead of clientSecret in sasl_jaas_config.",
        accepts="str | None",
        secret=True,
    )
    sasl_oauthbearer_scope: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The scope for which a token is requested, instead of scope in sasl_jaas_config.",
    )
    sasl_oauthbearer_scope_claim_name: str = option(
        TEXT, "scope", "The name of the claim with the scope in a token."
    )
    sasl_oauthbearer_sub_claim_name: str = option(
        TEXT, "sub", "The name of the claim with the user in a token."
    )
    sasl_oauthbearer_header_urlencode: bool = option(
        BOOLEAN,
        False,
        "Whether the client id and the secret are encoded for the token endpoint as RFC 6749 "
        "demands. Not all servers expect that.",
    )
    sasl_oauthbearer_assertion_algorithm: str = option(
        Choice((("RS256", ("rs256",)), ("ES256", ("es256",)))),
        "RS256",
        "The algorithm with which assertions for the token endpoint are signed.",
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = option(
        OPTIONAL_TEXT, None, "The audience of assertions."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = option(
        Integer(0, 86_400), 300, "The time for which assertions are valid, in seconds."
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = option(
        OPTIONAL_TEXT, None, "The issuer of assertions."
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = option(
        BOOLEAN, False, "Whether each assertion has an id of its own."
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = option(
        Integer(0, 3_600),
        60,
        "The time before now from which assertions are valid, in seconds. It allows for clocks "
        "that differ.",
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = option(
        OPTIONAL_TEXT, None, "The subject of assertions."
    )
    sasl_oauthbearer_assertion_file: str | None = option(
        OPTIONAL_PATH,
        None,
        "The path of a file with an assertion. It is read again for each request, and replaces "
        "the other options of assertions.",
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = option(
        OPTIONAL_PATH,
        None,
        "The path of the private key in PEM format with which assertions are signed. It is read "
        "again for each request.",
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | None = option(
        OPTIONAL_SECRET,
        None,
        "The passphrase of an encrypted private key.",
        accepts="str | None",
        secret=True,
    )
    sasl_oauthbearer_assertion_template_file: str | None = option(
        OPTIONAL_PATH,
        None,
        "The path of a JSON file whose objects header and payload are added to assertions.",
    )


class LoginOptions(TypedDict, total=False):
    """The keyword options of logins; `LoginConfig` checks them.

    `.ci/write-options` writes them from the fields above.
    """

    sasl_login_callback_handler_class: str | None
    sasl_login_connect_timeout_ms: int
    sasl_login_read_timeout_ms: int
    sasl_oauthbearer_jwt_retriever_class: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_token_provider: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_scope_claim_name: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: str | None
