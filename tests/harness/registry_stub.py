"""A schema registry in memory, with what only Confluent's has, and with faults.

It answers over HTTP as Confluent's registry 8.0 does: GUIDs, contexts, modes, metadata, rules, and
associations included. It does not read schemas: `incompatible` and `invalid` have the texts that it
refuses. Ids count in each context, with gaps.

    async with RegistryStub() as stub:
        stub.url
        stub.answer(status=429, headers={"Retry-After": "1"}, times=2)  # instead of its own answers
        stub.answer(body=b"<html>", status=200)
        stub.silence()  # reads requests, and never answers
        await stub.stop(); await stub.start()  # at the same address
        stub.requests  # (method, target) of all requests
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import NAMESPACE_URL, uuid5

__all__ = ["RegistryStub", "StubRequest", "StubThread"]

TRANSITIVE = "_TRANSITIVE"
LEVELS = ("NONE", "BACKWARD", "FORWARD", "FULL")
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")


class Refusal(Exception):
    """An error of the registry: a status, a code, and a text."""

    def __init__(self, code: int, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.status = code // 100 if status is None else status


@dataclass
class StubRequest:
    """A request as the stub has received it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class _Version:
    id: int
    number: int
    body: dict[str, Any]
    is_deleted: bool = False


@dataclass
class _Canned:
    status: int
    body: bytes
    headers: dict[str, str]
    left: int
    delay: asyncio.Event | None = None
    matches: str = ""
    hangs_up: bool = False


@dataclass
class _Context:
    ids: dict[int, dict[str, Any]] = field(default_factory=dict)
    next_id: int = 1


def context_of(subject: str) -> str:
    """Return the context of a subject, ":.:" for the default one."""
    if subject.startswith(":."):
        return subject[: subject.index(":", 2) + 1]
    return ":.:"


class RegistryStub:
    """A registry that listens on a port of this machine."""

    def __init__(
        self, *, tls: ssl.SSLContext | None = None, authorization: str | None = None
    ) -> None:
        self.requests: list[StubRequest] = []
        self.authorization = authorization
        """The value of the header without which the stub answers 401, or None."""
        self.incompatible: set[str] = set()
        self.invalid: set[str] = set()
        self.has_guids = True
        self.connections = 0
        self.associations: dict[tuple[str, str], list[str]] = {}
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._canned: list[_Canned] = []
        self._is_silent = False
        self._received = asyncio.Event()
        self.clear()

    def clear(self) -> None:
        """Forget all schemas and settings."""
        self._contexts: dict[str, _Context] = {":.:": _Context()}
        self._subjects: dict[str, list[_Version]] = {}
        self._config: dict[str, dict[str, Any]] = {"": {"compatibility": "BACKWARD"}}
        self._modes: dict[str, str] = {"": "READWRITE"}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, ssl=self._tls
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._server is not None:
            await self._server.wait_closed()
        self._server = None

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self._tls is None else "localhost"
        return f"{'http' if self._tls is None else 'https'}://{host}:{self._port}"

    # Faults

    def answer(
        self,
        body: bytes | Mapping[str, Any] = b"",
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        times: int = 1,
        delay: asyncio.Event | None = None,
        matches: str = "",
        hangs_up: bool = False,
    ) -> None:
        """Give this answer to the next requests whose target contains `matches`.

        With `delay`, the answer waits for the event, and is the registry's own if there is no body
        and the status is 200. With `hangs_up`, the request is carried out, and the connection is
        closed without an answer.
        """
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        canned = _Canned(status, data, dict(headers or {}), times, delay, matches, hangs_up)
        self._canned.append(canned)

    def silence(self, is_silent: bool = True) -> None:
        self._is_silent = is_silent

    async def until_requests(self, count: int) -> None:
        """Wait until the stub has received so many requests."""
        while len(self.requests) < count:
            self._received.clear()
            await self._received.wait()

    def targets(self) -> list[str]:
        return [f"{each.method} {each.target}" for each in self.requests]

    # HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    await self._serve_one(reader, writer)
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, target, _ = first.split(" ")
        pairs = (line.split(":", 1) for line in lines)
        headers = {name.lower(): value.strip() for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = StubRequest(method, target, headers, body)
        self.requests.append(request)
        self._received.set()
        if self._is_silent:
            await asyncio.Event().wait()
        status, data, more = await self._decide(request)
        if status == 0:
            raise ConnectionResetError
        more = {"Content-Type": "application/vnd.schemaregistry.v1+json", **more}
        more["Content-Length"] = str(len(data))
        lines = [f"HTTP/1.1 {status} Text", *(f"{name}: {text}" for name, text in more.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + data)
        await writer.drain()

    async def _decide(self, request: StubRequest) -> tuple[int, bytes, dict[str, str]]:
        canned = next((each for each in self._canned if each.matches in request.target), None)
        if canned is not None:
            canned.left -= 1
            if canned.left == 0:
                self._canned.remove(canned)
            if canned.delay is not None:
                await canned.delay.wait()
            if canned.hangs_up:
                self._answer(request)
                return 0, b"", {}
            if canned.body or canned.status != 200 or canned.delay is None:
                return canned.status, canned.body, canned.headers
        status, found = self._answer(request)
        return status, json.dumps(found).encode(), {}

    def _answer(self, request: StubRequest) -> tuple[int, Any]:
        given = request.headers.get("authorization")
        if self.authorization is not None and given != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = urlsplit(request.target)
        segments = [unquote(each) for each in parts.path.strip("/").split("/")]
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if segments[0] == "contexts" and len(segments) > 2:
            # The prefix of a context in the path of the URL.
            context, segments = f":{segments[1]}:", segments[2:]
            if "subject" not in query:
                query["subject"] = context
            if segments[0] in ("subjects", "config", "mode") and len(segments) > 1:
                segments[1] = context + segments[1]
        try:
            handler: Callable[..., Any] | None = getattr(
                self, f"_{request.method.lower()}_{segments[0]}", None
            )
            if handler is None:
                raise Refusal(404, "HTTP 404 Not Found", 404)
            body = json.loads(request.body) if request.body else {}
            return 200, handler(segments[1:], query, body)
        except Refusal as refusal:
            return refusal.status, {"error_code": refusal.code, "message": str(refusal)}

    # The calls, named after their method and the first segment of their path

    def _get_schemas(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        match segments:
            case ["types"]:
                return ["JSON", "PROTOBUF", "AVRO"]
            case ["ids", number, *rest]:
                name = context_of(query.get("subject", ""))
                context = self._contexts.get(name)
                found = None if context is None else context.ids.get(int(number))
                if found is None:
                    raise Refusal(40403, f"Schema {number} not found")
                if rest == ["versions"]:
                    return [
                        {"subject": subject, "version": each.number}
                        for subject, versions in self._subjects.items()
                        for each in versions
                        if each.id == int(number) and context_of(subject) == name
                        if not each.is_deleted
                    ]
                return found
            case ["guids", guid] if self.has_guids:
                for context in self._contexts.values():
                    for found in context.ids.values():
                        if found["guid"] == guid:
                            return found
                raise Refusal(40403, f"Schema {guid} not found")
        raise Refusal(404, "HTTP 404 Not Found", 404)

    def _get_subjects(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        deleted = query.get("deleted") == "true"
        if not segments:
            prefix = query.get("subjectPrefix", "")
            found = [name for name in self._subjects if self._live(name, deleted)]
            if prefix.startswith(":*:"):
                return [n for n in found if n.removeprefix(context_of(n)).startswith(prefix[3:])]
            return [
                name
                for name in found
                if name.startswith(prefix) and context_of(name) == context_of(prefix)
            ]
        subject = segments[0]
        versions = self._require_live(subject, deleted)
        if len(segments) == 2:
            return [each.number for each in versions]
        version = self._require_version(subject, segments[2], deleted)
        if segments[3:] == ["referencedby"]:
            return sorted(self._referring(subject, version.number))
        return self._shown(subject, version)

    def _post_subjects(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        subject = segments[0]
        schema = self._schema_in(subject, body)
        if len(segments) == 1:
            versions = self._require_live(subject, query.get("deleted") == "true")
            for each in reversed(versions):
                if each.body == schema:
                    return self._shown(subject, each)
            raise Refusal(40403, "Schema not found")
        mode = self._modes.get(subject, self._modes[""])
        if mode.startswith("READONLY"):
            raise Refusal(42205, f"Subject {subject} is in read-only mode")
        versions = self._subjects.setdefault(subject, [])
        for each in versions:
            if each.body == schema and not each.is_deleted:
                return self._shown(subject, each)
        level = self._config.get(subject, self._config[""])["compatibility"]
        if level != "NONE" and self._live(subject) and schema["schema"] in self.incompatible:
            raise Refusal(409, "Schema being registered is incompatible", 409)
        context = self._contexts.setdefault(context_of(subject), _Context())
        number = next((n for n, b in context.ids.items() if _same(b, schema)), None)
        if number is None:
            number, context.next_id = context.next_id, context.next_id + 2
            guid = str(uuid5(NAMESPACE_URL, json.dumps(schema, sort_keys=True)))
            context.ids[number] = {**schema, "guid": guid}
        version = _Version(number, len(versions) + 1, schema)
        versions.append(version)
        return self._shown(subject, version)

    def _delete_subjects(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        subject, permanent = segments[0], query.get("permanent") == "true"
        if len(segments) == 1:
            versions = self._subjects.get(subject, [])
            if not versions:
                raise Refusal(40401, f"Subject '{subject}' not found.")
            live = self._live(subject)
            if permanent and live:
                raise Refusal(40405, f"Subject '{subject}' was not deleted first")
            if not permanent and not live:
                raise Refusal(40404, f"Subject '{subject}' was soft deleted.")
            chosen = versions if permanent else live
        else:
            version = self._require_version(subject, segments[2], permanent)
            if permanent and not version.is_deleted:
                raise Refusal(40407, f"Subject '{subject}' version was not deleted first")
            chosen = [version]
        for each in chosen:
            if self._referring(subject, each.number):
                raise Refusal(42206, "One or more references exist to the schema")
        numbers = [each.number for each in chosen]
        for each in chosen:
            each.is_deleted = True
        if permanent:
            self._subjects[subject] = [v for v in self._subjects[subject] if v not in chosen]
        return numbers if len(segments) == 1 else numbers[0]

    def _post_compatibility(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        subject = segments[1]
        if len(segments) > 3:
            self._require_version(subject, segments[3], False)
        is_compatible = self._schema_in(subject, body)["schema"] not in self.incompatible
        messages = [] if is_compatible else ["{errorType:'TYPE_MISMATCH', description:'a'}"]
        return {"is_compatible": is_compatible, "messages": messages}

    def _get_config(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        found = self._config.get("".join(segments))
        if found is None:
            if query.get("defaultToGlobal") != "true":
                raise Refusal(40408, "Subject does not have subject-level compatibility configured")
            found = self._config[""]
        others = {name: value for name, value in found.items() if name != "compatibility"}
        return {"compatibilityLevel": found["compatibility"], **others}

    def _put_config(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        level = body.get("compatibility")
        if level is not None and level.removesuffix(TRANSITIVE) not in LEVELS:
            raise Refusal(42203, "Invalid compatibility level")
        key = "".join(segments)
        self._config[key] = {**self._config[""], **self._config.get(key, {}), **body}
        return body

    def _delete_config(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        found = self._config.pop("".join(segments), None)
        self._config.setdefault("", {"compatibility": "BACKWARD"})
        if found is None:
            raise Refusal(40401, "Subject not found")
        return {"compatibilityLevel": found["compatibility"]}

    def _get_mode(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        found = self._modes.get("".join(segments))
        if found is None:
            if query.get("defaultToGlobal") != "true":
                raise Refusal(40409, "Subject does not have subject-level mode configured")
            found = self._modes[""]
        return {"mode": found}

    def _put_mode(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        if body["mode"] not in MODES:
            raise Refusal(42204, "Invalid mode")
        if body["mode"] == "IMPORT" and self._subjects and query.get("force") != "true":
            raise Refusal(42205, "Cannot import since found existing subjects")
        self._modes["".join(segments)] = body["mode"]
        return body

    def _delete_mode(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        return {"mode": self._modes.pop("".join(segments), "READWRITE")}

    def _get_contexts(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        return sorted(self._contexts)

    def _delete_contexts(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        name = segments[0] if segments[0].startswith(":") else f":{segments[0]}:"
        if any(versions and context_of(s) == name for s, versions in self._subjects.items()):
            raise Refusal(42211, "The specified context is not empty")
        self._contexts.pop(name, None)
        return None

    def _get_associations(self, segments: list[str], query: dict[str, str], body: Any) -> Any:
        found = self.associations.get((segments[2], query.get("associationType", "")))
        if found is None:
            raise Refusal(40410, "No associations found")
        return [{"subject": each, "resourceName": segments[2]} for each in found]

    # Parts of the calls

    def _live(self, subject: str, deleted: bool = False) -> list[_Version]:
        return [v for v in self._subjects.get(subject, []) if deleted or not v.is_deleted]

    def _require_live(self, subject: str, deleted: bool) -> list[_Version]:
        found = self._live(subject, deleted)
        if not found:
            raise Refusal(40401, f"Subject '{subject}' not found.")
        return found

    def _require_version(self, subject: str, number: str, deleted: bool) -> _Version:
        found = self._require_live(subject, deleted)
        if number in ("latest", "-1"):
            return found[-1]
        if not number.isdigit() or number == "0":
            raise Refusal(42202, f"The specified version '{number}' is not a valid version id.")
        for each in found:
            if each.number == int(number):
                return each
        raise Refusal(40402, f"Version {number} not found.")

    def _shown(self, subject: str, version: _Version) -> dict[str, Any]:
        stored = self._contexts[context_of(subject)].ids[version.id]
        shown = {"subject": subject, "version": version.number, "id": version.id, **stored}
        return shown if self.has_guids else {k: v for k, v in shown.items() if k != "guid"}

    def _schema_in(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        names = ("schema", "schemaType", "references", "metadata", "ruleSet")
        schema = {name: body[name] for name in names if body.get(name)}
        if schema.get("schemaType", "AVRO") not in ("AVRO", "JSON", "PROTOBUF"):
            raise Refusal(42201, f"Invalid schema type {schema['schemaType']}")
        if schema.get("schemaType") == "AVRO":
            del schema["schemaType"]  # It is the default, which means the same.
        if schema["schema"] in self.invalid:
            raise Refusal(42201, "Invalid schema")
        for each in schema.get("references", ()):
            try:
                self._require_version(each["subject"], str(each["version"]), False)
            except Refusal:
                raise Refusal(42201, f"Unresolved reference {each['name']}") from None
        return schema

    def _referring(self, subject: str, number: int) -> set[int]:
        return {
            each.id
            for name, versions in self._subjects.items()
            for each in versions
            if not each.is_deleted
            for reference in each.body.get("references", ())
            if (reference["subject"], reference["version"]) == (subject, number)
        }


def _same(stored: dict[str, Any], schema: dict[str, Any]) -> bool:
    return {name: value for name, value in stored.items() if name != "guid"} == schema


class StubThread:
    """A stub in the event loop of a thread of its own, for tests that are not asynchronous."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> RegistryStub:
        self._thread.start()
        self._stub = RegistryStub(**self._options)
        asyncio.run_coroutine_threadsafe(self._stub.start(), self._loop).result(10)
        return self._stub

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stub.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
