"""The peers of GSSAPI in tests: a scripted package gssapi, a broker's side, and a KDC."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any, Self

import pytest

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.connections.sasl import Challenge, Login

MUTUAL = "mutual"
OFFER = b"\x01\0\0\0"
"""The message in which a broker says that it supports only connections without a security layer."""


# -- the scripted package ------------------------------------------------------------------------


class FakeGssError(Exception):
    """The base class of the package's errors."""

    def __init__(self, maj_code: int, min_code: int, text: str) -> None:
        super().__init__(text)
        self.maj_code, self.min_code = maj_code, min_code


class FakeGssapi(ModuleType):
    """A replacement of the package gssapi, with the parts that the client uses.

    Tests set its results. ``tokens`` has what the successive steps of a context return or raise.
    After the last step, the context is complete. ``ticket`` is the lifetime of the ticket, or the
    error that is raised in place of getting one.
    """

    NameType = SimpleNamespace(hostbased_service="host", kerberos_principal="principal")
    MechType = SimpleNamespace(kerberos="kerberos")
    RequirementFlag = SimpleNamespace(
        mutual_authentication=MUTUAL, integrity="integrity", out_of_sequence_detection="sequence"
    )
    exceptions = SimpleNamespace(GSSError=FakeGssError)

    def __init__(self) -> None:
        super().__init__("gssapi")
        self.__spec__ = ModuleSpec("gssapi", None)
        self.tokens: list[Any] = [b"ap-req", None]
        self.flags: tuple[str, ...] = (MUTUAL,)
        self.ticket: int | Exception = 3600
        self.contexts: list[dict[str, Any]] = []
        self.acquired: list[dict[str, Any]] = []
        self.received: list[bytes | None] = []
        self.on_call: Callable[[], None] = lambda: None

    def Name(self, name: str, kind: str) -> tuple[str, str]:
        return (name, kind)

    def Credentials(self, **given: Any) -> Any:
        self.on_call()
        self.acquired.append(given)
        if isinstance(self.ticket, Exception):
            raise self.ticket
        return SimpleNamespace(lifetime=self.ticket)

    def SecurityContext(self, **given: Any) -> FakeContext:
        self.contexts.append(given)
        return FakeContext(self)


class FakeContext:
    """A security context that follows the script."""

    def __init__(self, package: FakeGssapi) -> None:
        self._package = package
        self._tokens = deque(package.tokens)
        self.actual_flags = package.flags

    @property
    def complete(self) -> bool:
        return not self._tokens

    def step(self, token: bytes | None) -> bytes | None:
        self._package.on_call()
        self._package.received.append(token)
        response: bytes | Exception | None = self._tokens.popleft()
        if isinstance(response, Exception):
            raise response
        return response

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=wrapped(message))

    def unwrap(self, message: bytes) -> Any:
        if not message.startswith(b"signed:"):
            raise FakeGssError(6 << 16, 0, "A token had an invalid\nMIC")
        return SimpleNamespace(message=message.removeprefix(b"signed:"))


def wrapped(message: bytes) -> bytes:
    """Return a message as the scripted package signs it."""
    return b"signed:" + message


class FakeBroker:
    """The broker's side of an authentication with the scripted package."""

    user = "alice"

    def __init__(self, accounts: Any = None) -> None:
        self._answers = deque([(b"ap-req", b"ap-rep"), (b"", wrapped(OFFER))])

    def answer_message(self, message: bytes) -> Challenge:
        if self._answers:
            expected, answer = self._answers.popleft()
            if message != expected:
                raise Refused(Code.SASL_AUTHENTICATION_FAILED, f"{message!r} was unexpected.")
            return Challenge(answer, done=False)
        if message != wrapped(OFFER):
            raise Refused(Code.SASL_AUTHENTICATION_FAILED, f"{message!r} was unexpected.")
        return Challenge(b"", done=True, login=Login(self.user))


# -- the broker's side ---------------------------------------------------------------------------


class _Step(Enum):
    CONTEXT = 1
    EMPTY = 2
    CHOICE = 3


class Acceptor:
    """The broker's side of GSSAPI (RFC 4752), with the real package gssapi and a keytab."""

    def __init__(self, keytab: str) -> None:
        import gssapi

        credentials = gssapi.Credentials(usage="accept", store={"keytab": keytab})
        self._context = gssapi.SecurityContext(creds=credentials, usage="accept")
        self._step = _Step.CONTEXT

    def answer_message(self, message: bytes) -> Challenge:
        if self._step is _Step.CONTEXT:
            return self._accept(message)
        if self._step is _Step.EMPTY:
            assert message == b"", "the client must acknowledge the last token"
            return self._offer()
        choice = self._context.unwrap(message).message
        assert choice[:4] == OFFER, choice
        user = str(self._context.initiator_name)
        return Challenge(b"", done=True, login=Login(user))

    def _accept(self, message: bytes) -> Challenge:
        token = self._context.step(message)
        if not self._context.complete:
            return Challenge(token or b"", done=False)
        if token:
            self._step = _Step.EMPTY
            return Challenge(token, done=False)
        return self._offer()

    def _offer(self) -> Challenge:
        self._step = _Step.CHOICE
        return Challenge(self._context.wrap(OFFER, False).message, done=False)


# -- the key distribution center -----------------------------------------------------------------

PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
REALM = "AIOKCLIENT.TEST"
NOBODY = 65534


def missing_for_kerberos() -> str:
    """Return which requirements of tests with a real KDC are missing. An empty text means none."""
    missing = [name for name in PROGRAMS if _program(name) is None]
    try:
        import gssapi  # noqa: F401
    except ImportError:
        missing.append("the package gssapi")
    return ", ".join(missing)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


MISSING = missing_for_kerberos()
REQUIRED = bool(os.environ.get("CI")) and _program("apt-get") is not None
"""Whether tests fail instead of being skipped, because the requirements could be installed."""
needs_kerberos = pytest.mark.skipif(
    bool(MISSING) and not REQUIRED,
    reason=f"GSSAPI: not run. Missing: {MISSING}. Run .ci/need-krb5.",
)


class Kdc:
    """A key distribution center in a folder of its own, on loopback, without a system service.

    It is a context manager. It never runs as root. Programs that use it need the variables in
    `environment`.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kdc-"))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {
            "KRB5_CONFIG": str(self.folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder}/tickets",
        }

    def __enter__(self) -> Self:
        try:
            self._configure()
            self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, principal: str, *, life: str = "1 hour") -> None:
        """Add a principal with a random key, and write its keytab."""
        keytab = self.keytab(principal)
        self._run("kadmin.local", "-q", f'addprinc -randkey -maxlife "{life}" {principal}')
        self._run("kadmin.local", "-q", f"ktadd -k {keytab} {principal}")

    def keytab(self, principal: str) -> str:
        """Return the path of the keytab of a principal."""
        return str(self.folder / f"{principal.replace('/', '-')}.keytab")

    def kinit(self, principal: str, cache: Path) -> None:
        """Write a ticket into a ticket cache."""
        program = _program("kinit")
        assert program is not None
        # The test reads the cache, so `kinit` runs as the user of the test.
        self._finish(
            [program, "-c", f"FILE:{cache}", "-k", "-t", self.keytab(principal), principal]
        )

    def issued(self, principal: str) -> int:
        """Return how many first tickets the KDC has issued to a principal."""
        log = self.folder / "kdc.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return sum("AS_REQ" in line and "ISSUE" in line and principal in line for line in lines)

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command("krb5kdc", "-n"),
            env=os.environ | self.environment,
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, "the KDC has ended"
            assert time.monotonic() < deadline, "the KDC does not listen"
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def _configure(self) -> None:
        folder = self.folder
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n"
            " udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
            f"[domain_realm]\n localhost = {REALM}\n"
        )
        plugins = sorted(
            Path(_program("krb5kdc") or "/").parent.parent.glob("lib/*/krb5/plugins/kdb")
        )
        modules = f"[dbmodules]\n db_module_dir = {plugins[0]}\n" if plugins else ""
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n"
            f" kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n"
            f"  key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n }}\n"
            f"[logging]\n kdc = FILE:{folder}/kdc.log\n{modules}"
        )
        if self._drops_root:
            for path in (folder, *folder.iterdir()):
                os.chown(path, NOBODY, NOBODY)

    @property
    def _drops_root(self) -> bool:
        return os.geteuid() == 0 and shutil.which("setpriv") is not None

    def _command(self, name: str, *arguments: str) -> list[str]:
        program = _program(name)
        assert program is not None, name
        if not self._drops_root:
            return [program, *arguments]
        user = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        return ["setpriv", *user, program, *arguments]

    def _run(self, name: str, *arguments: str) -> None:
        self._finish(self._command(name, *arguments))

    def _finish(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
