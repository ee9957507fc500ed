"""One version of Kafka on disk: its jars, a formatted template, an AppCDS archive.

Everything is made once and kept under ``.kafka/<version>/``. The template is what
``StorageTool format`` writes (two small files), so that a node starts from a copy and needs
no JVM for formatting. The archive makes a JVM start in half the time. It is valid for one JVM
and one class path.
"""

import base64
import hashlib
import shutil
import subprocess
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from .files import CACHE, prepared
from .java import find, find_java, java_identity

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{version}</version>{exclusions}</dependency>{tools}
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
<version>1.7.36</version></dependency>
</dependencies></project>
"""
TOOLS_DEPENDENCY = """
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
<version>{version}</version></dependency>"""
NO_TOOLS = """<exclusions>
<exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion>
<exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId></exclusion>
</exclusions>"""
JVM_OPTIONS = ("-Xmx192m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


def random_id() -> str:
    """Return an id in Kafka's form: 16 random bytes in base64url, 22 characters."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


@dataclass(frozen=True)
class Distribution:
    """A version of Kafka. ``tools`` adds the command line tools, for versions that have them.

    ``features`` are those of a cluster that differ from the version's own, as ``NAME=LEVEL``.
    """

    version: str
    tools: bool = False
    features: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return CACHE / (f"{self.version}-tools" if self.tools else self.version)

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def jars(self) -> Path:
        """Return the folder of the jars, which Maven downloads at the first use."""
        return prepared(self.folder / "jars", self._fetch)

    def class_path(self) -> str:
        """Return the class path with all jars.

        Their order is fixed: an AppCDS archive requires one order.
        """
        return ":".join(str(jar) for jar in sorted(self.jars().glob("*.jar")))

    def template(self) -> Path:
        """Return a formatted folder for log.dirs, to be copied for each node."""
        name = "-".join(["template", *self.features])
        return prepared(self.folder / name, self._format)

    def archive(self) -> Path:
        """Return the AppCDS archive for this JVM and these jars."""
        key = hashlib.sha256((java_identity() + self.class_path()).encode()).hexdigest()[:12]
        return prepared(self.folder / f"kafka-{key}.jsa", self._archive)

    def prepare(self) -> None:
        """Create everything that a start needs."""
        self.jars()
        if not self.tools:
            self.template()
            self.archive()

    def command(
        self, main: str, *arguments: str, jvm: tuple[str, ...] = (), plugins: tuple[Path, ...] = ()
    ) -> list[str]:
        """Return the command that runs a Java class; ``plugins`` are folders with more classes."""
        # The archive is valid only if the class path begins with the one for which it was made.
        class_path = ":".join([self.class_path(), *map(str, plugins)])
        return [find_java(), *jvm, *LOG_OPTIONS, "-cp", class_path, main, *arguments]

    def _fetch(self, target: Path) -> None:
        pom = target.parent / "pom.xml"
        tools = TOOLS_DEPENDENCY.format(version=self.version) if self.tools else ""
        # The tools of some versions are not published. Brokers do not need them.
        exclusions = "" if self.tools or self.major < 4 else NO_TOOLS
        pom.write_text(POM.format(version=self.version, exclusions=exclusions, tools=tools))
        fetch_jars(f"Kafka {self.version}", pom, target)

    def _format(self, target: Path) -> None:
        properties = target.parent / "format.properties"
        properties.write_text(
            f"process.roles=broker,controller\nnode.id=1\nlog.dirs={target}\n"
            "controller.quorum.voters=1@127.0.0.1:1\ncontroller.listener.names=CONTROLLER\n"
            "listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\n"
        )
        features = [part for each in self.features for part in ("--feature", each)]
        arguments = ("format", "-t", random_id(), "-c", str(properties), *features)
        run(
            f"formatting a folder for Kafka {self.version}",
            self.command("kafka.tools.StorageTool", *arguments),
        )

    def _archive(self, target: Path) -> None:
        from .cluster import KafkaCluster

        option = f"-XX:ArchiveClassesAtExit={target}"
        with KafkaCluster(self, jvm=(option,), archive=False) as cluster:
            cluster.stop(1, timeout=250)  # The archive is written at the end.
        if not target.exists():
            raise RuntimeError(f"The JVM wrote no class archive for Kafka {self.version}.")

    def node_folder(self, node_id: int, cluster_id: str) -> Path:
        """Return a new formatted folder for a node; the caller deletes it."""
        folder = Path(tempfile.mkdtemp(prefix=f"kafka-{self.version}-node{node_id}-"))
        data = folder / "data"
        shutil.copytree(self.template(), data)
        identify_directory(data, node_id, cluster_id)
        return folder


def identify_directory(folder: Path, node_id: int, cluster_id: str) -> None:
    """Give a log directory the ids of a node, as formatting does."""
    folder.mkdir(exist_ok=True)
    (folder / "meta.properties").write_text(
        f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\ndirectory.id={random_id()}\n"
    )


def fetch_jars(what: str, pom: Path, target: Path) -> None:
    """Download the dependencies in a POM to a folder."""
    command = [find("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
    run(f"fetching {what} through Maven", command)


def run(what: str, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stdout + done.stderr)[-3000:]
        raise RuntimeError(f"{what} failed (exit code {done.returncode}):\n{tail}")


KAFKA = Distribution("4.4.0")
OLD = Distribution("3.9.1")
TOOLS = Distribution("4.3.1", tools=True)
SHARING = (
    Distribution("4.1.1", features=("share.version=1",)),
    Distribution("4.2.0"),
    Distribution("4.3.1"),
)
"""Older versions with share groups, which 4.1 has as a preview that is disabled by default."""
