"""The client of a schema registry with the API of Confluent's."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias, TypeVar
from uuid import UUID

from aiokclient import threads
from aiokclient.clock import Clock, SystemClock
from aiokclient.config.secret import Secret
from aiokclient.errors import (
    ClosedError,
    ConfigError,
    SchemaRegistryError,
    SerializationError,
    WrongLoopError,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import Metrics, MetricsSnapshot, MetricValue
from aiokclient.network.event_hub import EventHub, EventReader
from aiokclient.network.transport import Connector, TcpConnector
from aiokclient.schema.http.endpoints import (
    Call,
    check_credentials,
    choose_tls,
    make_call,
    parse_basic_auth,
    parse_headers,
    parse_proxy,
    parse_urls,
)
from aiokclient.schema.http.flights import BoundedCache, Flights, copied
from aiokclient.schema.schema import (
    CompatibilityCheck,
    RegisteredSchema,
    RegistryConfig,
    Schema,
    SchemaReference,
    registered_of,
    require_number,
    require_text,
    schema_body,
    schema_of,
)
from aiokclient.types import public_in

if TYPE_CHECKING:
    import ssl

    from aiokclient.config.security import Tls
    from aiokclient.config.security.sasl import TokenProvider
    from aiokclient.schema.http.requests import RegistryRequests

T = TypeVar("T")
Version: TypeAlias = "int | str"

NEGATIVE_S: Final = 5.0
"""Seconds for which the client does not ask again for an id or a GUID that does not exist."""
DEEPEST: Final = 32
"""The number of schemas on a way of references, each of which refers to the next one."""
MOST_REFERENCES: Final = 1000
"""The number of schemas to which one schema may refer, directly or not."""
LOGGER: Final = "aiokclient.schema"


@public_in("aiokclient.schema")
class SchemaRegistry:
    """A client of a schema registry.

    `urls` is one URL, several ones with commas, or a sequence. A request goes to the URL that
    answered last, and to the next one if that gives no answer. `basic_auth` is a pair of a user and
    a password, or "user:password"; they may also be in a URL. `token_provider` returns bearer
    tokens, as that of `SaslOAuthBearer` does: `OidcClientCredentials`, `OidcJwtBearer`, or any
    async function that returns an `OAuthToken`. `security` is a `Tls` or an `ssl.SSLContext` for
    https URLs, which otherwise trust the certificates of the operating system. `headers` are sent
    with each request. `proxy` is the URL of an HTTP proxy, such as http://user:password@proxy:3128,
    through which all requests go. `timeout` bounds each call, with all its attempts, in seconds.
    `cache_size` bounds each of the caches, in schemas. `connector` and `clock` are as those of
    other clients.

    Use it as `async with SchemaRegistry(...) as registry:`, or await `close()` at the end. It
    belongs to the event loop that uses it first. It needs the extra `registry`.

    Raises ConfigError for arguments that are not allowed, and ImportError without the extra.
    All calls are coroutines, and raise SchemaRegistryError if the registry refuses them,
    SchemaNotFoundError among these if it does not know a subject, version, or schema, and
    SchemaRegistryUnavailableError if no URL answers before the timeout. A call that is cancelled
    may still be carried out.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        basic_auth: tuple[str, str] | str | None = None,
        token_provider: TokenProvider | None = None,
        security: Tls | ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
        timeout: float = 10.0,
        cache_size: int = 1000,
        connector: Connector | None = None,
        clock: Clock | None = None,
    ) -> None:
        # Before anything that may raise an error, whose traceback would show them.
        if not callable(token_provider):
            token_provider = Secret.of(token_provider)  # type: ignore[assignment]
        urls, basic_auth, headers = Secret.of(urls), Secret.of(basic_auth), Secret.of(headers)  # type: ignore[assignment]
        proxy = Secret.of(proxy)  # type: ignore[assignment]
        self._endpoints = parse_urls(urls)  # type: ignore[arg-type]
        self._basic = parse_basic_auth(basic_auth)  # type: ignore[arg-type]
        self._headers = parse_headers(headers)  # type: ignore[arg-type]
        self._proxy = parse_proxy(proxy)  # type: ignore[arg-type]
        self._token_provider = token_provider
        check_credentials(self._endpoints, self._basic, token_provider)
        self._tls = choose_tls(self._endpoints, security)
        self._timeout_s = _positive("timeout", timeout)
        size = int(_positive("cache_size", cache_size))
        if find_spec("httpcore2") is None:
            raise ImportError(
                "SchemaRegistry needs httpcore2, which is not installed. Run pip install "
                "'aiokclient[registry]'."
            )
        self._connector = TcpConnector() if connector is None else connector
        self._clock = SystemClock() if clock is None else clock
        self._log = ClientLog(LOGGER, "schema-registry")
        self._metrics = Metrics(self._clock)
        self._events = EventHub(self._clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requests: RegistryRequests | None = None
        self._flights = Flights()
        self._is_closed = False
        self._by_id: BoundedCache[tuple[str, int], RegisteredSchema] = BoundedCache(size)
        self._by_guid: BoundedCache[UUID, RegisteredSchema] = BoundedCache(size)
        self._by_text: BoundedCache[tuple[str, Schema, bool], RegisteredSchema] = BoundedCache(size)
        self._by_version: BoundedCache[tuple[str, int], RegisteredSchema] = BoundedCache(size)
        self._unknown: BoundedCache[Hashable, tuple[float, SchemaRegistryError]] = BoundedCache(
            size
        )

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any] | str | os.PathLike[str],
        **options: Any,
    ) -> Self:
        """Return a client with the options of a mapping, or of a properties file.

        The names are those of Confluent's clients: `schema.registry.url`, `basic.auth.*`,
        `bearer.auth.*`, and `schema.registry.ssl.*`, the first and the last of which may also be
        without a prefix if there is no other client in the file. Other names are those of other
        clients and are ignored. `options` are arguments of the constructor, which replace those of
        the file. Raises ConfigError for values that are not allowed. Blocking if it reads a file.
        """
        from aiokclient.schema.http.properties import hide_registry_properties, registry_options

        # The local variables of this function must not have the secrets when it raises an error.
        hidden = properties = hide_registry_properties(properties, options)  # type: ignore[assignment]
        return cls(**{**registry_options(hidden), **options})

    def __repr__(self) -> str:
        return f"SchemaRegistry({', '.join(each.url for each in self._endpoints)!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A SchemaRegistry cannot be copied or pickled. Create one in each process and event "
            "loop that uses it."
        )

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs, without users and passwords."""
        return tuple(each.url for each in self._endpoints)

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, and end all requests.

        Calls that wait for an answer raise ClosedError. Closing twice is no error.
        """
        self._is_closed = True
        try:
            await self._flights.close()
            if self._requests is not None:
                await self._requests.close()
        finally:
            self._events.end_readers()

    # Observing

    def metrics(self) -> MetricsSnapshot:
        """Return all metrics, by `name{label=value,...}`. Synchronous, also after the close."""
        return self._metrics.take_snapshot()

    def metric_values(self, prefix: str = "") -> list[MetricValue]:
        """Return, as tuples, the metrics whose names begin with `prefix`. Synchronous."""
        return self._metrics.collect_values(prefix)

    def events(self) -> EventReader:
        """Return an asynchronous iterator over the events from now on. Synchronous.

        They are `RegistryOutage` of `aiokclient.events`. The iterator ends when this object is
        closed. Raises ClosedError if it is closed already.
        """
        if self._is_closed:
            raise ClosedError("The client of the schema registry is closed.")
        return self._events.open_reader()

    # Schemas

    async def register(
        self, subject: str, schema: Schema, normalize: bool = False
    ) -> RegisteredSchema:
        """Register a schema in a subject, unless it is registered there, and return it with its id.

        With `normalize=True`, the registry looks for a schema that differs in its text only. The
        same call returns the first answer again, without a request. Cancelled or not answered, the
        schema may be registered nevertheless, and the call can be repeated.
        """
        known = self._by_text.find((subject, schema, normalize))
        if known is not None:
            return known
        return await self._join(
            ("register", subject, schema, normalize), self._register, subject, schema, normalize
        )

    async def _register(self, subject: str, schema: Schema, normalize: bool) -> RegisteredSchema:
        call = make_call(
            "POST",
            "subjects",
            _text("subject", subject),
            "versions",
            query={"normalize": normalize},
            body=schema_body(schema),
        )
        registered = await self._ask(call, self._registered, schema, subject)
        self._by_text.keep((subject, schema, normalize), registered)
        self._unknown.drop(lambda key: True)  # It may be one that was not found before.
        return registered

    @staticmethod
    def _registered(body: Any, schema: Schema, subject: str) -> RegisteredSchema:
        found = registered_of(body, schema=schema, subject=subject)
        require_number(found.id)
        return found

    async def lookup(
        self, subject: str, schema: Schema, normalize: bool = False, *, deleted: bool = False
    ) -> RegisteredSchema:
        """Return the version of a subject that has this schema, without registering it.

        `deleted=True` finds deleted versions, too. Raises SchemaNotFoundError if there is none.
        """
        return await self._join(
            ("lookup", subject, schema, normalize, deleted),
            self._lookup,
            subject,
            schema,
            normalize,
            deleted,
        )

    async def _lookup(
        self, subject: str, schema: Schema, normalize: bool, deleted: bool
    ) -> RegisteredSchema:
        call = make_call(
            "POST",
            "subjects",
            _text("subject", subject),
            query={"normalize": normalize, "deleted": deleted},
            body=schema_body(schema),
        )
        return await self._ask(call, self._registered, schema, subject)

    async def by_id(self, id: int, subject: str | None = None) -> RegisteredSchema:
        """Return the schema of an id. Deleted schemas are found, too.

        Ids count within a context. `subject` is any subject of the context, such as
        ":.context:orders", and None means the default one. The answer is kept, and the one that
        there is no such id for 5 seconds.
        """
        key = (_context(subject), id)
        known = self._by_id.find(key)
        if known is not None:
            return known
        return await self._join_negative(("id", *key), self._fetch_id, id, subject)

    async def _fetch_id(self, id: int, subject: str | None) -> RegisteredSchema:
        context = _context(subject)
        call = make_call(
            "GET",
            "schemas",
            "ids",
            _number("id", id),
            query={"subject": subject if context else None},
        )
        registered = await self._ask(call, _of_id, id)
        self._by_id.keep((context, id), registered)
        return registered

    async def by_guid(self, guid: UUID | str) -> RegisteredSchema:
        """Return the schema of a GUID, which is the same in all contexts.

        Confluent's registry has GUIDs since version 8.0. Raises SchemaRegistryError with the status
        404 if the registry has none, or is none. Answers are kept as by `by_id`.
        """
        guid = _guid(guid)
        known = self._by_guid.find(guid)
        if known is not None:
            return known
        return await self._join_negative(("guid", guid), self._fetch_guid, guid)

    async def _fetch_guid(self, guid: UUID) -> RegisteredSchema:
        call = make_call("GET", "schemas", "guids", str(guid))
        registered = await self._ask(call, _of_guid, guid)
        self._by_guid.keep(guid, registered)
        return registered

    async def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest version of a subject. It is requested each time."""
        return await self._join(("latest", subject), self._fetch_version, subject, "latest", False)

    async def version(
        self, subject: str, version: Version, *, deleted: bool = False
    ) -> RegisteredSchema:
        """Return a version of a subject, which is a number from 1 on, or "latest".

        `deleted=True` finds a deleted version, too. The answer for a number is kept.
        """
        known = None if isinstance(version, str) else self._by_version.find((subject, version))
        if known is not None:
            return known
        return await self._join(
            ("version", subject, version, deleted), self._fetch_version, subject, version, deleted
        )

    async def _fetch_version(
        self, subject: str, version: Version, deleted: bool
    ) -> RegisteredSchema:
        call = make_call(
            "GET",
            "subjects",
            _text("subject", subject),
            "versions",
            _version(version),
            query={"deleted": deleted},
        )
        registered = await self._ask(call, _of_version, subject)
        if isinstance(version, int) and version > 0 and not deleted:
            self._by_version.keep((subject, version), registered)
        return registered

    async def resolve(self, schema: Schema, subject: str | None = None) -> dict[str, Schema]:
        """Return all schemas to which a schema refers, directly or not, by the names of references.

        Each comes after those to which it refers itself. `subject` is that of the schema: if it is
        one of a context, references without a context mean the same one.

        Raises SerializationError if schemas refer to each other in a circle, if the way of
        references is longer than 32 or there are over 1000, and if one name stands for two schemas.
        """
        found: dict[str, Schema] = {}
        await self._resolve(schema, _context(subject), (), found)
        return found

    async def _resolve(
        self,
        schema: Schema,
        context: str,
        way: tuple[SchemaReference, ...],
        found: dict[str, Schema],
    ) -> None:
        for reference in schema.references:
            _check_way(way, reference)
            subject = reference.subject
            if context and not subject.startswith(":."):
                subject = context + subject
            registered = await self.version(subject, reference.version)
            before = found.get(reference.name)
            if before == registered.schema:
                continue
            if before is not None:
                raise SerializationError(
                    f"The references of a schema name two different schemas {reference.name}. One "
                    f"is version {reference.version} of {subject}."
                )
            await self._resolve(registered.schema, context, (*way, reference), found)
            if len(found) >= MOST_REFERENCES:
                raise SerializationError(f"A schema refers to over {MOST_REFERENCES} other ones.")
            found[reference.name] = registered.schema

    # Subjects and versions

    async def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Return the names of all subjects that begin with a prefix, sorted.

        `deleted=True` includes deleted ones. The default prefix means those of the default context;
        ":*:" means those of all contexts.
        """
        call = make_call(
            "GET", "subjects", query={"subjectPrefix": prefix or None, "deleted": deleted}
        )
        names = await self._join(("subjects", prefix, deleted), self._ask, call, _texts)
        # Some registries ignore the prefix. What is after a wildcard of contexts is the subject.
        plain = prefix.removeprefix(":*:")
        if plain != prefix:
            return sorted(name for name in names if _without_context(name).startswith(plain))
        return sorted(name for name in names if name.startswith(prefix))

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject. `deleted=True` includes deleted ones."""
        call = make_call(
            "GET", "subjects", _text("subject", subject), "versions", query={"deleted": deleted}
        )
        return await self._join(("versions", subject, deleted), self._ask, call, _numbers)

    async def versions_of_id(self, id: int, subject: str | None = None) -> list[tuple[str, int]]:
        """Return the subjects and versions that have the schema of an id."""
        context = _context(subject)
        call = make_call(
            "GET",
            "schemas",
            "ids",
            _number("id", id),
            "versions",
            query={"subject": subject if context else None},
        )
        return await self._join(("versions of", context, id), self._ask, call, _pairs)

    async def referenced_by(self, subject: str, version: Version) -> list[int]:
        """Return the ids of the schemas that refer to a version of a subject."""
        call = make_call(
            "GET",
            "subjects",
            _text("subject", subject),
            "versions",
            _version(version),
            "referencedby",
        )
        return await self._join(("referenced", subject, version), self._ask, call, _numbers)

    async def types(self) -> list[str]:
        """Return the types of schemas that the registry knows."""
        return await self._join("types", self._ask, make_call("GET", "schemas", "types"), _texts)

    async def delete_version(
        self, subject: str, version: Version, *, permanent: bool = False
    ) -> int:
        """Delete a version of a subject, and return its number.

        It can still be found by its id, and `permanent=True`, in a second call, deletes it for
        good. Not repeated if the registry may have carried it out without an answer.
        """
        call = make_call(
            "DELETE",
            "subjects",
            _text("subject", subject),
            "versions",
            _version(version),
            query={"permanent": permanent},
        )
        return await self._delete(subject, call, require_number)

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions of a subject, and return their numbers.

        `permanent=True` and repetitions are as in `delete_version`.
        """
        call = make_call(
            "DELETE", "subjects", _text("subject", subject), query={"permanent": permanent}
        )
        return await self._delete(subject, call, _numbers)

    async def _delete(self, subject: str, call: Call, decode: Callable[[Any], T]) -> T:
        try:
            return await self._join(object(), self._ask, call, decode)
        finally:
            # Also after an error, which may hide a deletion.
            self._by_text.drop(lambda key: key[0] == subject)
            self._by_version.drop(lambda key: key[0] == subject)

    async def check(
        self, subject: str, schema: Schema, version: Version | None = "latest"
    ) -> CompatibilityCheck:
        """Return whether a schema is compatible with a version, by the subject's configuration.

        With `version=None`, it is compared with all versions that the configuration demands.
        """
        segments = () if version is None else (_version(version),)
        call = make_call(
            "POST",
            "compatibility",
            "subjects",
            _text("subject", subject),
            "versions",
            *segments,
            query={"verbose": True},
            body=schema_body(schema),
        )
        return await self._join(object(), self._ask, call, _check_of)

    # Configuration, modes, contexts

    async def config(
        self, subject: str | None = None, *, default_to_global: bool = True
    ) -> RegistryConfig:
        """Return the configuration of a subject, or of the whole registry for None.

        With `default_to_global=False`, a subject without a configuration raises SchemaRegistryError
        with the code 40408; some registries return that of the whole registry all the same.
        """
        call = make_call(
            "GET",
            "config",
            *_optional(subject),
            query={"defaultToGlobal": default_to_global and subject is not None},
        )
        return await self._join(("config", subject, default_to_global), self._ask, call, _config_of)

    async def set_config(
        self,
        subject: str | None = None,
        compatibility: str | None = None,
        *,
        normalize: bool | None = None,
        alias: str | None = None,
        **others: Any,
    ) -> RegistryConfig:
        """Change the configuration of a subject, or of the whole registry for None.

        None leaves a setting as it is. `others` are settings by the registry's names, such as
        `compatibilityGroup`. Returns what the registry has accepted; some ignore all but
        `compatibility`.
        """
        given = {"compatibility": compatibility, "normalize": normalize, "alias": alias, **others}
        body = {name: value for name, value in given.items() if value is not None}
        call = make_call("PUT", "config", *_optional(subject), body=body)
        return await self._join(object(), self._ask, call, _config_of)

    async def delete_config(self, subject: str | None = None) -> None:
        """Delete the configuration of a subject, so that that of the registry applies to it."""
        call = make_call("DELETE", "config", *_optional(subject))
        await self._join(object(), self._ask, call, _ignore)

    async def mode(self, subject: str | None = None, *, default_to_global: bool = True) -> str:
        """Return the mode of a subject, or of the whole registry for None.

        It is "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", or "FORWARD".
        """
        call = make_call(
            "GET",
            "mode",
            *_optional(subject),
            query={"defaultToGlobal": default_to_global and subject is not None},
        )
        return await self._join(("mode", subject, default_to_global), self._ask, call, _mode_of)

    async def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> str:
        """Change the mode of a subject, or of the whole registry for None, and return it.

        `force=True` allows IMPORT although there are schemas.
        """
        call = make_call(
            "PUT",
            "mode",
            *_optional(subject),
            query={"force": force},
            body={"mode": _text("mode", mode)},
        )
        return await self._join(object(), self._ask, call, _mode_of)

    async def delete_mode(self, subject: str) -> None:
        """Delete the mode of a subject, so that that of the registry applies to it."""
        call = make_call("DELETE", "mode", _text("subject", subject))
        await self._join(object(), self._ask, call, _ignore)

    async def contexts(self) -> list[str]:
        """Return the names of the contexts, as the registry writes them."""
        return await self._join("contexts", self._ask, make_call("GET", "contexts"), _texts)

    async def delete_context(self, context: str) -> None:
        """Delete a context. It must have no subjects, not even deleted ones."""
        call = make_call("DELETE", "contexts", _text("context", context))
        await self._join(object(), self._ask, call, _ignore)

    async def associated_subject(self, topic: str, part: str) -> str | None:
        """Return the subject that is associated with the keys or values of a topic, or None.

        `part` is "key" or "value". Registries without associations answer as if there were none.
        Raises SerializationError if there are several.
        """
        call = make_call(
            "GET",
            "associations",
            "resources",
            "-",
            _text("topic", topic),
            query={"resourceType": "topic", "associationType": part},
        )
        return await self._join(("associated", topic, part), self._find_association, topic, call)

    async def _find_association(self, topic: str, call: Call) -> str | None:
        try:
            subjects = await self._ask(call, _associated)
        except SchemaRegistryError as error:
            if error.status == 404:
                return None
            raise
        if len(subjects) > 1:
            raise SerializationError(
                f"Several subjects are associated with the topic {topic}: {', '.join(subjects)}."
            )
        return subjects[0] if subjects else None

    # Requests

    async def _join_negative(
        self,
        key: tuple[Hashable, ...],
        function: Callable[..., Coroutine[Any, Any, T]],
        *args: Any,
    ) -> T:
        """Return the result of a shared request, or raise the error of a recent one."""
        unknown = self._unknown.find(key)
        if unknown is not None and self._clock.monotonic() < unknown[0] + NEGATIVE_S:
            raise copied(unknown[1])
        try:
            return await self._join(key, function, *args)
        except SchemaRegistryError as error:
            if error.status == 404:
                self._unknown.keep(key, (self._clock.monotonic(), error))
            raise

    async def _join(
        self, key: Hashable, function: Callable[..., Coroutine[Any, Any, T]], *args: Any
    ) -> T:
        await self._start()
        return await self._flights.join(key, function, *args)

    async def _ask(self, call: Call, decode: Callable[..., T], *args: Any) -> T:
        """Send a request and return the decoded answer. Runs in a task of this object."""
        requests = self._requests
        assert requests is not None
        body = await requests.ask(call)
        problem: Exception
        try:
            return decode(body, *args)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            problem = error
        raise requests.make_shape_error(call, problem)

    async def _start(self) -> None:
        """Check that the call is allowed, and prepare the first one."""
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise ClosedError("The client of the schema registry is closed.")
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise WrongLoopError(
                "This SchemaRegistry belongs to another event loop, which used it first. Make one "
                "for each loop."
            )
        if self._requests is None:
            await self._flights.join("start", self._make_requests)

    async def _make_requests(self) -> None:
        # httpcore2 takes long to import, and certificates to read.
        self._requests = await threads.run_blocking(self._load)
        readable = next((each.url for each in self._endpoints if each.is_readable), None)
        users = (self._basic, self._token_provider, *(each.basic for each in self._endpoints))
        if readable is not None and any(each is not None for each in users):
            self._log.warning(
                "The credentials for the schema registry at %s are sent unencrypted. Use https.",
                readable,
                extra={"event": "credentials_unencrypted"},
            )

    def _load(self) -> RegistryRequests:
        from aiokclient.schema.http.requests import RegistryRequests
        from aiokclient.schema.http.transport import make_pool

        tokens = None
        if self._token_provider is not None:
            from aiokclient.config.client import ClientConfig
            from aiokclient.config.security import SaslOAuthBearer
            from aiokclient.network.sasl.tokens import TokenSource

            # The tokens of a registry are kept as those of brokers are, with the same defaults.
            tokens = TokenSource(
                SaslOAuthBearer(self._token_provider),
                ClientConfig(bootstrap_servers="unused:1"),
                clock=self._clock,
                tasks=self._flights,
                log=self._log,
            )
        return RegistryRequests(
            self._endpoints,
            make_pool(self._connector, self._endpoints, self._tls, self._proxy, self._log),
            proxy=self._proxy,
            basic=self._basic,
            tokens=tokens,
            headers=self._headers,
            timeout_s=self._timeout_s,
            metrics=self._metrics,
            events=self._events,
            clock=self._clock,
            log=self._log,
        )


def _of_id(body: Any, id: int) -> RegisteredSchema:
    found = registered_of(body)
    # Some registries add a subject and a version, but the schema of an id may be in several.
    return RegisteredSchema(id, found.guid, None, None, found.schema)


def _of_guid(body: Any, guid: UUID) -> RegisteredSchema:
    return RegisteredSchema(None, guid, None, None, schema_of(body))


def _of_version(body: Any, subject: str) -> RegisteredSchema:
    found = registered_of(body, subject=subject)
    require_number(found.id)
    require_number(found.version)
    return found


def _texts(body: Any) -> list[str]:
    return [require_text(each) for each in body]


def _numbers(body: Any) -> list[int]:
    return [require_number(each) for each in body]


def _pairs(body: Any) -> list[tuple[str, int]]:
    return [(require_text(each["subject"]), require_number(each["version"])) for each in body]


def _check_of(body: Any) -> CompatibilityCheck:
    is_compatible = body["is_compatible"]
    if not isinstance(is_compatible, bool):
        raise TypeError("is_compatible is not true or false")
    # Confluent's registry has `messages`, others `reason`.
    messages = body.get("messages") or [body.get("reason")]
    return CompatibilityCheck(is_compatible, tuple(str(each) for each in messages if each))


def _config_of(body: Any) -> RegistryConfig:
    others = dict(body)
    # It is `compatibilityLevel` when it is read, and `compatibility` when it is written.
    level = others.pop("compatibilityLevel", None)
    written = others.pop("compatibility", None)
    return RegistryConfig(
        level or written, others.pop("normalize", None), others.pop("alias", None), others
    )


def _mode_of(body: Any) -> str:
    return require_text(body["mode"])


def _associated(body: Any) -> list[str]:
    return sorted({require_text(each["subject"]) for each in body})


def _ignore(body: Any) -> None:
    """Decode the answer of a call that returns nothing."""


def _context(subject: str | None) -> str:
    """Return the context of a subject as its prefix, such as ":.context:", or an empty text."""
    if subject is None or not subject.startswith(":."):
        return ""
    end = subject.find(":", 2)
    context = subject[: end + 1] if end > 0 else ""
    return "" if context == ":.:" else context


def _without_context(subject: str) -> str:
    return subject.removeprefix(_context(subject))


def _check_way(way: tuple[SchemaReference, ...], reference: SchemaReference) -> None:
    """Raise SerializationError if a reference closes a circle, or is too deep."""
    names = " -> ".join(each.name for each in (*way, reference))
    if any((each.subject, each.version) == (reference.subject, reference.version) for each in way):
        raise SerializationError(f"Schemas refer to each other in a circle: {names}.")
    if len(way) >= DEEPEST:
        raise SerializationError(f"Over {DEEPEST} schemas refer to each other in a row: {names}.")


def _positive(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"SchemaRegistry: {name} must be a number greater than 0.")
    return value


def _text(name: str, value: object) -> str:
    if not (isinstance(value, str) and value):
        raise ConfigError(f"SchemaRegistry: {name} must be a string that is not empty.")
    return value


def _number(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"SchemaRegistry: {name} must be an integer that is not negative.")
    return value


def _version(value: object) -> int | str:
    if value == "latest" or (
        isinstance(value, int) and not isinstance(value, bool) and (value > 0 or value == -1)
    ):
        return value
    raise ConfigError('SchemaRegistry: version must be an integer greater than 0, or "latest".')


def _guid(value: UUID | str) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise ConfigError("SchemaRegistry: guid must be a UUID, or its text.") from None


def _optional(subject: str | None) -> tuple[str, ...]:
    return () if subject is None else (_text("subject", subject),)
