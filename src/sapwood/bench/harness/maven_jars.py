"""Jars of Kafka, Delta Lake and cloud storage, fetched by Maven into a cache outside the project.

Experiments and tests with such systems need jars that are no part of PySpark. Each `JarSet` names all of its
artifacts, because the transitive ones of a Spark module lead Maven to repositories that not every network
reaches. A set is fetched once for each machine:

    ~/.cache/sapwood/jars/NAME-DIGEST/*.jar     or below SAPWOOD_CACHE or XDG_CACHE_HOME, if one is set

python -m sapwood.bench.harness.maven_jars NAME FOLDER      copies the jars of a set into a folder
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from xml.sax.saxutils import escape

from sapwood.errors import SapwoodError

_MAVEN_SECONDS = 600


class JarError(SapwoodError):
    """Raised when jars cannot be fetched; says why, and what to do."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are used together: coordinates of artifacts, `group:artifact:version`."""

    name: str
    artifacts: Sequence[str]
    transitive: bool = False
    """whether the dependencies of the artifacts belong to the set"""

    def fetch(self) -> list[Path]:
        """Return the paths of the jars, which Maven fetches if they are not in the cache."""
        pom = _write_pom(self)
        folder = cache_folder() / "jars" / f"{self.name}-{sha256(pom.encode()).hexdigest()[:12]}"
        if not folder.is_dir():
            _fetch(pom, folder)
        return sorted(folder.glob("*.jar"))

    @property
    def packages(self) -> list[str]:
        """The coordinates, as `[spark] packages` in a pipeline file takes them."""
        return list(self.artifacts)


KAFKA_SERVER = JarSet("kafka-server", ["org.apache.kafka:kafka_2.13:4.3.1"], transitive=True)
"""Kafka's broker, in KRaft mode."""

KAFKA_CONNECTOR = JarSet(
    "kafka-connector",
    [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ],
)
"""Spark's connector to Kafka. 4.2.0 is the newest on Maven Central, and works with Spark 4.3 and 4.2; of the
token provider, which it only calls for Kerberos, that is 4.1.0-preview1."""

DELTA = JarSet("delta", ["io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0"])
"""Delta Lake, whose newest version is made for Spark 4.2 and does not work with 4.3."""

S3_FILE_SYSTEM = JarSet(
    "hadoop-aws",
    [
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    ],
)
"""Hadoop's file system `s3a`, in the version of the Hadoop in PySpark 4.2 and 4.3."""

_AWS_SDK = "2.35.4"
AWS_SDK = JarSet(
    "aws-sdk",
    [
        f"software.amazon.awssdk:{module}:{_AWS_SDK}"
        for module in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
    ],
    transitive=True,
)
"""The parts of the AWS SDK that `s3a` uses: 15 MB instead of the bundle of all services that it names."""


SETS = {jars.name: jars for jars in (KAFKA_SERVER, KAFKA_CONNECTOR, DELTA)}


def main() -> None:
    """Copy the jars of a set into a folder."""
    if len(sys.argv) != 3 or sys.argv[1] not in SETS:
        sys.exit(f"usage: python -m sapwood.bench.harness.maven_jars {'|'.join(SETS)} FOLDER")
    folder = Path(sys.argv[2])
    try:
        jars = SETS[sys.argv[1]].fetch()
    except JarError as error:
        sys.exit(str(error))
    folder.mkdir(parents=True, exist_ok=True)
    for jar in jars:
        shutil.copy(jar, folder)
    print(f"{len(jars)} jars are in {folder}")


def cache_folder() -> Path:
    """Return the folder for what is fetched once for each machine."""
    if own := os.environ.get("SAPWOOD_CACHE"):
        return Path(own)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "sapwood"


def _write_pom(jars: JarSet) -> str:
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    dependencies = []
    for artifact in jars.artifacts:
        group, name, version = map(escape, artifact.split(":"))
        coordinates = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        exclusions = "" if jars.transitive else f"<exclusions>{everything}</exclusions>"
        dependencies.append(f"    <dependency>{coordinates}{exclusions}</dependency>\n")
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        f"  <groupId>sapwood</groupId><artifactId>{escape(jars.name)}</artifactId><version>1</version>\n"
        f"  <dependencies>\n{''.join(dependencies)}  </dependencies>\n"
        "</project>\n"
    )


def _fetch(pom: str, folder: Path) -> None:
    """Fetch the jars of a POM into a folder, which appears when all of them are there."""
    maven = shutil.which("mvn")
    if maven is None:
        raise JarError(
            "Maven is missing, which fetches the jars: install it (Debian/Ubuntu: sudo apt-get install maven)"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as name:
        unfinished = Path(name)
        (unfinished / "pom.xml").write_text(pom)
        goal = "dependency:copy-dependencies"
        command = [maven, "-B", "-q", goal, "-DincludeScope=runtime", "-DoutputDirectory=jars"]
        result = subprocess.run(
            command, cwd=unfinished, capture_output=True, text=True, timeout=_MAVEN_SECONDS
        )
        if result.returncode:
            reason = next((line for line in result.stdout.splitlines() if "ERROR" in line), "no reason given")
            raise JarError(f"Maven cannot fetch the jars of {folder.name}: {reason}")
        try:
            (unfinished / "jars").rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise


if __name__ == "__main__":
    main()
