"""The jars of a Maven project, resolved once a machine into a folder outside the repository.

The folder's name holds a digest of the project file, so that a changed dependency is a new folder:

    ~/.cache/odradek-tests/kafka-4.4.0-1f0c.../kafka-clients-4.4.0.jar ...
    ~/.cache/odradek-tests/kafka-1f0c.../own-7c2e.../own.jar          our own Java sources, compiled against them
    ~/.cache/odradek-tests/kafka-1f0c.../own-7c2e.../server.jsa       the classes of a server: see `KeptClasses`
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECTS = Path(__file__).parent / "jars"
SOURCES = Path(__file__).parent / "java"
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
RESOLVE_TIMEOUT_S = 280
COMPILE_TIMEOUT_S = 120
OWN_JAR = "own.jar"


JAVA = ["java", f"-Djava.io.tmpdir={tempfile.gettempdir()}"]
"""Begins a command that runs Java. What it unpacks and never removes goes where Python's temporary files go."""


class PeerMissingError(Exception):
    """A program that the tests need is not on this machine; the text says which."""


def require(*programs: str) -> None:
    """Raises PeerMissingError unless all of `programs` are on the path."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise PeerMissingError(f"not on this machine: {', '.join(missing)}")


def cache_root() -> Path:
    """The folder that keeps what was resolved from one run to the next."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek-tests"


def classpath(project: str, version: str | None = None) -> str:
    """Resolves `jars/<project>.xml` and compiles our Java sources, if that was not done before.

    Args:
        project: The name of the file.
        version: What `project.version` is in it; None if it has no such property.

    Returns:
        The class path: our jar first, then every other. Java keeps no classes (CDS) of a class path with a folder.

    Raises:
        PeerMissingError: no `java`, `javac` or `mvn` here.
        RuntimeError: Maven or the compiler failed; the text holds what it said.
    """
    require("java", "javac", "mvn")
    definition = PROJECTS / f"{project}.xml"
    name = project if version is None else f"{project}-{version}"
    folder = cache_root() / f"{name}-{digest([definition])}"
    given = [] if version is None else [f"-D{project}.version={version}"]
    with locked(cache_root() / f"{project}.lock"):
        if not folder.exists():
            into(folder, lambda target: _copy_dependencies(definition, target, *given))
        jars = [str(jar) for jar in sorted(folder.glob("*.jar"))]
        sources = sorted((SOURCES / project).glob("*.java")) + sorted(SOURCES.glob("*.java"))
        own = folder / f"own-{digest(sources)}"
        if not own.exists():
            into(own, lambda target: _compile(sources, jars, target))
    return os.pathsep.join([str(own / OWN_JAR), *jars])


class KeptClasses:
    """The classes that a server has loaded, as Java keeps them for the next start (CDS): half of a start is loading.

    The first server that stops in order leaves them. One that was killed leaves nothing, and the next one tries.

    Args:
        classpath: What `classpath` has returned.
    """

    def __init__(self, classpath: str) -> None:
        self._kept = Path(classpath.partition(os.pathsep)[0]).with_name("server.jsa")
        self._being_kept = self._kept.with_name(f"{os.getpid()}-{id(self)}.jsa")

    def options(self) -> list[str]:
        """Returns the options of Java for a start."""
        return self.options_to_use() or [f"-XX:ArchiveClassesAtExit={self._being_kept}", "-Xlog:cds*=off"]

    def options_to_use(self) -> list[str]:
        """Returns the options of Java for a program that has much in common with the server, and keeps no classes."""
        # Where they are of another Java, it goes without them.
        return [f"-XX:SharedArchiveFile={self._kept}", "-Xlog:cds*=off"] if self._kept.exists() else []

    def stopped(self) -> None:
        """Takes what was kept by a server that has stopped."""
        if self._being_kept.exists():
            self._being_kept.rename(self._kept)


def digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps parallel test processes from resolving the same jars at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        yield


def into(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fills a temporary folder and renames it, so that `folder` is complete whenever it exists."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as temporary:
        target = Path(temporary) / "content"
        target.mkdir()
        fill(target)
        target.rename(folder)


def _copy_dependencies(definition: Path, target: Path, *given: str) -> None:
    arguments = [*given, "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
    _run(["mvn", "-B", "-q", "-f", str(definition), COPY_DEPENDENCIES, *arguments], RESOLVE_TIMEOUT_S)


def _compile(sources: list[Path], jars: list[str], target: Path) -> None:
    classes = target / "classes"
    command = ["javac", "--release", "17", "-proc:none", "-d", str(classes), "-cp", os.pathsep.join(jars)]
    _run([*command, *map(str, sources)], COMPILE_TIMEOUT_S)
    with zipfile.ZipFile(target / OWN_JAR, "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            jar.write(path, path.relative_to(classes))


def _run(command: list[str], timeout_s: float) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{command[0]} failed ({result.returncode}):\n{result.stdout}\n{result.stderr}")
