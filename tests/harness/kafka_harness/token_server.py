"""A token server for OAUTHBEARER, which Maven downloads and which runs as a process on loopback.

It is the mock-oauth2-server of navikt. It grants `client_credentials` and `jwt-bearer`, accepts any
secret and any assertion, signs the tokens of each issuer with a key of its own, and publishes the
public keys. The subject of a token is the client id or the subject of the assertion, and the
audience is the scope.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from .distribution import fetch_jars
from .files import CACHE, prepared
from .java import find_java
from .node import ReservedPort, spawner
from .probe import wait_until

VERSION = "6.0.2"
POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>
<dependency><groupId>no.nav.security</groupId><artifactId>mock-oauth2-server</artifactId>
<version>{VERSION}</version></dependency>
</dependencies></project>
"""
MAIN = "no.nav.security.mock.oauth2.StandaloneMockOAuth2ServerKt"
JVM = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def jars() -> Path:
    """Return the folder of the jars, which Maven downloads at the first use."""
    return prepared(CACHE / f"mock-oauth2-server-{VERSION}" / "jars", _fetch)


def _fetch(target: Path) -> None:
    pom = target.parent / "pom.xml"
    pom.write_text(POM)
    fetch_jars(f"the token server {VERSION}", pom, target)


class TokenServer:
    """A running token server. It is a context manager.

    ``claims`` maps an issuer to the scopes for which a client can request its tokens, and each
    scope to the claims of these tokens. Clients of such an issuer need a client id. Issuers that
    are not in ``claims`` need no configuration.
    """

    def __init__(self, claims: Mapping[str, Mapping[str, Mapping[str, object]]]) -> None:
        self._claims = claims
        self._reserved = ReservedPort()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="token-server-"))

    def __enter__(self) -> Self:
        try:
            self._start()
            wait_until("the token server", self._answers, 120)
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
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._reserved.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def issuer(self, name: str) -> str:
        """Return the URL of an issuer, which is the claim `iss` of its tokens."""
        return f"http://127.0.0.1:{self._reserved.port}/{name}"

    def token_url(self, issuer: str) -> str:
        return f"{self.issuer(issuer)}/token"

    def jwks_url(self, issuer: str) -> str:
        return f"{self.issuer(issuer)}/jwks"

    def _start(self) -> None:
        class_path = ":".join(str(jar) for jar in sorted(jars().glob("*.jar")))
        command = [find_java(), *JVM, "-cp", class_path, MAIN]
        # Where the system supports it, the server ends with the tests even if they are killed.
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        environment = os.environ | {
            "SERVER_HOSTNAME": "127.0.0.1",
            "SERVER_PORT": str(self._reserved.port),
            "JSON_CONFIG": json.dumps(self._configuration()),
        }
        with (self._folder / "log").open("wb") as log:
            self._process = spawner.submit(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=environment,
            ).result()

    def _configuration(self) -> dict[str, object]:
        callbacks = []
        for issuer, scopes in self._claims.items():
            mappings = [
                {"requestParam": "scope", "match": scope, "claims": claims}
                for scope, claims in scopes.items()
            ]
            callbacks.append({"issuerId": issuer, "requestMappings": mappings})
        return {
            "interactiveLogin": False,
            "httpServer": "NettyWrapper",
            "tokenCallbacks": callbacks,
        }

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            log = (self._folder / "log").read_text(errors="replace")
            raise RuntimeError(f"The token server ended unexpectedly.\n{log[-3000:]}")
        with contextlib.closing(
            urllib.request.urlopen(self.jwks_url("any"), timeout=5)
        ) as response:
            return bool(response.status == 200)
