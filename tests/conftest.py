"""What the tests share: the log directories that real Kafka brokers wrote, unpacked once a run."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import tarfile
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gate.cases import other_cases
from odradek.kafka_version import KAFKA_VERSION, OLDER_KAFKA_VERSION
from odradek.storage import file_lock
from odradek.storage.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from odradek.storage.locks import Rank, check_lock_order, create_lock
from peers import spark_classes
from peers.kafka_fixture import KafkaFixture

TESTS = Path(__file__).parent

pytest_plugins = ["peers.fixtures", "peers.missing", "peers.seeds", "crash.options", "gate.events"]

# A lock that is taken out of order raises, in every test.
check_lock_order(True)

# A shell starts what runs in its background with SIGINT ignored, and `nohup` with SIGHUP. The programs that tests start
# would inherit that.
for _signal, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, _handler)

# Of Spark's Java, also where programs and examples start it: the optimising compiler (C2) doubles the time where all
# runs once.
for _name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
    os.environ.setdefault(_name, f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={tempfile.gettempdir()}")
SPARK_JAVA = os.environ["SPARK_SUBMIT_OPTS"]

# Options for this run are not for those that the examples of the documentation start.
os.environ.pop("PYTEST_ADDOPTS", None)

# Where the crash laboratory has its files, too.
IN_MEMORY = Path("/dev/shm")
LEAST_MEMORY_BYTES = 4 << 30

# How long a test may take that pytest ends with all of its process: for one that hangs, never for one that is slow.
OUTSIDE_TIMEOUT_S = 1500
SLOW_TIMEOUT_S = 900


def deselects(config: pytest.Config, marker: str) -> bool:
    """Whether `-m` leaves out every test that has a marker."""
    expression: str = config.option.markexpr
    return f"not {marker}" in expression and " or " not in expression


def pytest_configure(config: pytest.Config) -> None:
    """Let the quick tests have their files in memory, if there is enough: they make hundreds of thousands.

    The others have them on a real disk.
    """
    if deselects(config, "slow") and IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= LEAST_MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Give `-n auto` half as many workers again as there are cores, but to the quick tests.

    The others wait half of the time: for brokers, for sessions that end, for Spark. A worker more of the quick tests
    only collects them once more.
    """
    return None if deselects(config, "slow") else (3 * len(os.sched_getaffinity(0)) + 1) // 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Any:
    """Where a worker has whole files, let one have all that need Spark: it starts once, and is warm for all of them."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    made: Any = LoadFileScheduling(config, log)
    scope_of = made._split_scope
    made._split_scope = lambda nodeid: "spark" if nodeid.startswith("tests/spark/") else scope_of(nodeid)
    return made


LONGEST = (
    "unit/broker/test_longest_turns.py",
    "unit/testing/test_conformance.py",
    "unit/testing/test_mutants.py",
    "spark/test_forward.py",
    "unit/cli/test_every_command.py",
    "interop/test_take_over.py",
    "unit/test_docs.py",
    "interop/test_operate_kafka.py",
    "spark/test_pipeline.py",
    "spark/test_write.py",
    "interop/test_faults_kafka.py",
    "interop/test_offset_store_kafka.py",
)


def _turn(item: pytest.Item) -> tuple[bool, bool]:
    """Say when a file has its turn where a worker has whole ones: so that all workers end together, short ones last."""
    # Thousands of tests are asked: their ids begin with their paths.
    path = item.nodeid.partition("::")[0].removeprefix("tests/")
    return path not in LONGEST, path.startswith(("property/", "unit/"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the first cases of each `sampled` test among the quick tests, and mark the others slow.

    All but the quick ones have more time, and the laboratory has most cases of their tables.

    Nor do tests that interrupt the code anywhere hear of what was opened in that moment, and never closed.
    """
    seen: Counter[str] = Counter()
    for item in items:
        if isinstance(item, pytest.Function) and "real_locks" in item.fixturenames:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        sampled = item.get_closest_marker("sampled")
        if sampled is not None:
            function = item.nodeid.partition("[")[0]
            seen[function] += 1
            if seen[function] > (sampled.args[0] if sampled.args else 1):
                item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("timeout") is None and any(
            map(item.get_closest_marker, ("interop", "spark", "slow"))
        ):
            is_outside = item.path.is_relative_to(TESTS / "interop")
            item.add_marker(pytest.mark.timeout(OUTSIDE_TIMEOUT_S if is_outside else SLOW_TIMEOUT_S))
    for item in list(other_cases(items)):
        item.add_marker(pytest.mark.laboratory)
    items.sort(key=_turn)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let each Spark that a test starts have the classes that Java has kept, once they are: half of a start."""
    if item.get_closest_marker("spark") is not None:
        os.environ["SPARK_SUBMIT_OPTS"] = f"{SPARK_JAVA} {spark_classes.options()}".strip()


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the thousands of tests, and over what was imported for them, from now on."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let it have them again, or libraries say that they have leaked."""
    gc.unfreeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the folders whose tests are all deselected, nor the large packages that they need."""
    is_whole = collection_path.parent == TESTS and collection_path.name in {"interop", "spark"}
    return True if is_whole and deselects(config, collection_path.name) else None


@pytest.fixture
def real_locks() -> Iterator[None]:
    """For tests that interrupt the code anywhere: real locks, and no garbage for the tests that come after.

    No exception can leave real locks locked; those that check their order are Python code.
    """
    check_lock_order(False)
    # This one was made with its module.
    kept, file_lock._register.lock = file_lock._register.lock, create_lock(Rank.REGISTER)
    yield
    file_lock._register.lock = kept
    check_lock_order(True)
    with warnings.catch_warnings():
        # What was opened in the moment of an interrupt was never closed.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


VECTORS = TESTS / "vectors"

SmallLogDirectory = Callable[..., Path]
"""Makes a private copy of some partitions; see the fixture `small_log_dir`."""


def _unpack(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack an archive, or wait until another worker of this run has."""
    root = tmp_path_factory.getbasetemp()
    # Each worker has a folder of its own within that of the run.
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    path = root / name
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unpacked = tmp_path_factory.mktemp(name)
            with tarfile.open(VECTORS / f"{name}.tar.xz") as archive:
                archive.extractall(unpacked, filter="data")
            unpacked.rename(path)
    return path


@pytest.fixture(scope="session")
def fixture_4_3_1(tmp_path_factory: pytest.TempPathFactory) -> KafkaFixture:
    """What Apache Kafka 4.3.1 wrote. Read-only: copy a folder before changing it."""
    return KafkaFixture("4.3.1", _unpack("kafka-4.3.1", tmp_path_factory))


@pytest.fixture(scope="session")
def fixture_2_8_2(tmp_path_factory: pytest.TempPathFactory) -> KafkaFixture:
    """What Apache Kafka 2.8.2 wrote, v0 and v1 messages among it. Read-only."""
    return KafkaFixture("2.8.2", _unpack("kafka-2.8.2", tmp_path_factory))


@pytest.fixture(scope="session", params=["4.3.1", "2.8.2"])
def kafka_fixture(request: pytest.FixtureRequest) -> KafkaFixture:
    """Each fixture in turn."""
    name = f"fixture_{request.param.replace('.', '_')}"
    found: KafkaFixture = request.getfixturevalue(name)
    return found


@pytest.fixture(scope="session")
def kafka_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archive of groups of every kind, which Apache Kafka wrote. Read-only."""
    return _unpack(f"groups-kafka-{KAFKA_VERSION}", tmp_path_factory)


@pytest.fixture(scope="session")
def older_kafka_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, written by the Apache Kafka before. Read-only."""
    return _unpack(f"groups-kafka-{OLDER_KAFKA_VERSION}", tmp_path_factory)


@pytest.fixture
def writable_log_dir(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> Path:
    """A private copy of the clean 4.3.1 log directory."""
    return Path(shutil.copytree(fixture_4_3_1.log_dir, tmp_path / "log-dir"))


@pytest.fixture
def small_log_dir(fixture_4_3_1: KafkaFixture, fixture_2_8_2: KafkaFixture, tmp_path: Path) -> SmallLogDirectory:
    """Makes a private copy of some partitions, with the metadata: `small_log_dir("keyed-0", version="4.3.1")`."""

    def make(*partitions: str, version: str = "4.3.1", clean: bool = True) -> Path:
        fixture = fixture_4_3_1 if version == "4.3.1" else fixture_2_8_2
        source = fixture.log_dir if clean else fixture.log_dir_unclean
        root = tmp_path / "data"
        root.mkdir()
        wanted = [source / name for name in partitions]
        if version == "4.3.1":
            wanted.append(source / "__cluster_metadata-0")
        for path in {*(path for path in source.iterdir() if path.is_file()), *wanted}:
            if path.is_dir():
                shutil.copytree(path, root / path.name)
            else:
                shutil.copy(path, root / path.name)
        for path in root.glob("*-offset-checkpoint"):
            offsets = read_offset_checkpoint(path)
            write_offset_checkpoint(path, {name: offset for name, offset in offsets.items() if str(name) in partitions})
        for path in root.rglob("*"):
            # Snapshots of the metadata log cannot be written to.
            path.chmod(0o755 if path.is_dir() else 0o644)
        return root

    return make
