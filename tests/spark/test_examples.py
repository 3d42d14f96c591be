"""The jobs in `examples/`, run against real servers: nothing but addresses and names of topics is changed."""

from __future__ import annotations

import ast
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.dataset
import pytest
import redis
from click.testing import CliRunner
from kafka import KafkaProducer
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

import odradek
import odradek.testing
from odradek.admin.opening import open_admin
from odradek.cli.app import main
from odradek.offsets.store import open_store
from odradek.spark.pipeline import Job, Pipeline
from peers.kafka import KafkaBroker
from peers.process import free_port
from peers.redis import RedisServer
from peers.zookeeper import ZooKeeperServer

EXAMPLES = Path(__file__).parents[2] / "examples"
DAY_MS = 24 * 60 * 60 * 1000
START_MS = 1_790_000_000_000
WORDS = ["the log", "The  log is", "an append only", "log", "of records and the log"]

pytestmark = pytest.mark.usefixtures("signals_as_before")


class CrashError(BaseException):
    """What no job expects."""


def example(folder: Path, name: str, **changes: str) -> Path:
    """Copy an example into a folder `examples`, with other addresses."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file = folder / "examples" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def run(file: Path, *options: str) -> str:
    ended = CliRunner().invoke(main, ["pipeline", "run", str(file), *options])
    assert ended.exit_code == 0, ended.output
    return ended.output


def rows(folder: Path, *columns: str) -> Counter[tuple[Any, ...]]:
    table = pyarrow.dataset.dataset(folder, partitioning="hive").to_table(columns=list(columns))
    return Counter(tuple(row.values()) for row in table.to_pylist())


def words_of(texts: list[str]) -> Counter[tuple[Any, ...]]:
    counted = Counter(word for text in texts for word in text.lower().split(" ") if word)
    return Counter(dict.fromkeys(counted.items(), 1))


def plain(words: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Return the words without those that are not UTF-8, which Spark and Python show in two ways."""
    return Counter({row: number for row, number in words.items() if re.fullmatch("[a-z]+", row[0])})


@pytest.fixture
def send(shared_kafka: KafkaBroker) -> Callable[[str, int], list[str]]:
    """Writes texts to a topic of two partitions, one every eight hours; returns all that were written."""
    sent: list[str] = []
    numbers = count()

    def write(topic: str, texts: int) -> list[str]:
        producer = KafkaProducer(bootstrap_servers=shared_kafka.bootstrap_servers, acks="all")
        try:
            for number in (next(numbers) for _ in range(texts)):
                sent.append(f"{WORDS[number % len(WORDS)]} {number}")
                when = START_MS + number * DAY_MS // 3
                producer.send(topic, sent[-1].encode(), b"%d" % number, [("n", b"%d" % number)], number % 2, when)
            producer.flush()
        finally:
            producer.close()
        return sent

    return write


def positions_in(kind: str, request: pytest.FixtureRequest, kafka: KafkaBroker) -> str:
    """Return the address of a store, as the example has it."""
    if kind == "redis":
        return f"redis://127.0.0.1:{request.getfixturevalue('redis_server').port}/0?group={{name}}"
    if kind == "zookeeper":
        return f"zookeeper://{request.getfixturevalue('zookeeper_server').hosts}/{{name}}"
    return f"kafka://{kafka.bootstrap_servers}/examples-{{name}}"


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["redis", "zookeeper", "kafka"])
def test_external_to_internal(
    kind: str,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    shared_kafka: KafkaBroker,
    send: Callable[[str, int], list[str]],
    tmp_path: Path,
) -> None:
    servers = shared_kafka.bootstrap_servers
    changes = {
        "redis://localhost:6379/0?group={name}": positions_in(kind, request, shared_kafka),
        "kafka.example.org:9092": servers,
        '"localhost:9092"': f'"{servers}"',
        "texts": f"texts-{kind}",
    }
    file = example(tmp_path, "external-to-internal.toml", **changes)
    external, internal = f"texts-{kind}", f"internal.texts-{kind}"
    with open_admin(f"kafka://{servers}") as admin:
        for topic in (external, internal):
            admin.create_topic(topic, 2)
    sent = send(external, 40)

    def crash(step: str) -> None:
        if step.endswith("storing its end ..."):
            raise CrashError

    def check() -> None:
        address = f"kafka://{servers}"
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation": "read_committed", "follow": False}
        with odradek.consume(address, internal, **options) as copied:
            found = sorted((one.record.timestamp, one.partition, one.record) for one in copied)
        assert [
            (record.key, record.value, record.headers, timestamp, partition) for timestamp, partition, record in found
        ] == [
            (b"%d" % number, text.encode(), (("n", b"%d" % number),), START_MS + number * DAY_MS // 3, number % 2)
            for number, text in enumerate(sent)
        ]
        assert rows(tmp_path / "totals", "word", "count") == words_of(sent)
        assert rows(tmp_path / "by-date", "value") == Counter({(text.encode(),): 1 for text in sent})
        dates = {path.name for path in (tmp_path / "by-date").glob("date=*")}
        assert {"date=2026-09-21", "date=2026-09-22"} < dates

    # Each job dies after its sinks have written, and before its store has the batch's end.
    for job in Job.read_all(file):
        with pytest.raises(CrashError):
            Pipeline(job, spark, on_step=crash).run()
    assert "log" in run(file)
    check()
    if kind == "redis":
        send(external, 20)
        run(file)
        check()
    for job in Job.read_all(file):
        with open_store(job.offset_store) as store:
            places = store.load()
        assert {name.partition for name in places} == {0, 1}


@pytest.mark.interop
def test_kafka_to_parquet(
    spark: SparkSession,
    shared_kafka: KafkaBroker,
    redis_server: RedisServer,
    send: Callable[[str, int], list[str]],
    tmp_path: Path,
) -> None:
    servers = shared_kafka.bootstrap_servers
    with open_admin(f"kafka://{servers}") as admin:
        admin.create_topic("events", 2)
    sent = send("events", 10)
    changes = {"localhost:9092": servers, "redis://localhost:6379/0": redis_server.url}
    file = example(tmp_path, "kafka-to-parquet.toml", **changes)
    run(file, "--follow", "1")
    assert rows(tmp_path / "events", "topic", "value") == Counter({("events", text.encode()): 1 for text in sent})


@pytest.fixture
def external() -> Iterator[odradek.testing.Broker]:
    with odradek.testing.Broker() as broker:
        yield broker


@pytest.fixture
def internal() -> Iterator[odradek.testing.Broker]:
    with odradek.testing.Broker() as broker:
        yield broker


def fill(broker: odradek.testing.Broker, topic: str) -> list[odradek.Record]:
    """Make a topic with some records; return them."""
    broker.create_topic(topic, 1)
    records = [
        odradek.Record(b"%d" % number, f"{text} {number}".encode(), (("n", b"1"),), START_MS + number)
        for number, text in enumerate(WORDS)
    ]
    broker.logs[topic, 0].append(records)
    return records


def content(broker: odradek.testing.Broker, topic: str) -> list[tuple[Any, ...]]:
    found = broker.logs[topic, 0].read(isolation="read_committed")
    return [(record.key, record.value, record.headers, record.timestamp) for record in found]


def test_forward(
    spark: SparkSession, external: odradek.testing.Broker, internal: odradek.testing.Broker, tmp_path: Path
) -> None:
    sent = fill(external, "orders")
    internal.create_topic("orders", 1)
    file = example(
        tmp_path,
        "forward.toml",
        **{"kafka.example.org:9093": external.bootstrap_servers, "localhost:9092": internal.bootstrap_servers},
    )
    # The external broker of the test wants no login.
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    secrets = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
    file.write_text("".join(line for line in lines if not line.startswith(secrets)), encoding="utf-8")
    run(file, "--follow", "1")
    assert content(internal, "orders") == [(one.key, one.value, one.headers, one.timestamp) for one in sent]


@pytest.mark.interop
def test_forward_all(
    spark: SparkSession,
    external: odradek.testing.Broker,
    internal: odradek.testing.Broker,
    redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    sent = {topic: fill(external, topic) for topic in ("tea", "coffee", "unknown")}
    for topic in ("internal.tea", "internal.coffee", "internal-dead-letters"):
        internal.create_topic(topic, 1)
    changes = {
        "kafka.example.org:9092": external.bootstrap_servers,
        "localhost:9092": internal.bootstrap_servers,
        "redis://localhost:6379/0": redis_server.url,
        "127.0.0.1:9404": f"127.0.0.1:{free_port()}",
    }
    run(example(tmp_path, "forward-all.toml", **changes), "--follow", "1")
    for topic in ("tea", "coffee"):
        wanted = [(one.key, one.value, one.headers, one.timestamp) for one in sent[topic]]
        assert content(internal, f"internal.{topic}") == wanted
    letters = content(internal, "internal-dead-letters")
    assert [value for _, value, _, _ in letters] == [one.value for one in sent["unknown"]]


@pytest.mark.interop
@pytest.mark.laboratory
def test_the_job_of_a_cluster(
    spark: SparkSession, external: odradek.testing.Broker, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """On the session of the tests: `test_cluster.py` has a cluster."""
    sent = fill(external, "texts")
    changes = {
        "kafka-1:9092,kafka-2:9092": external.bootstrap_servers,
        "zookeeper-1:2181": zookeeper_server.hosts,
        "/shared/words": str(tmp_path / "words"),
    }
    run(example(tmp_path, "cluster.toml", **changes), "--follow", "1")
    words = Counter((word,) for one in sent for word in (one.value or b"").decode().lower().split(" ") if word)
    assert rows(tmp_path / "words", "word") == words


def test_wordcount(spark: SparkSession, writable_log_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    writable_log_dir.rename(tmp_path / "demo" / "log-dir")
    file = example(tmp_path, "wordcount.toml")

    def check() -> None:
        with odradek.open(tmp_path / "demo" / "log-dir", "r") as logs:
            texts = [record.value.decode(errors="replace") for record in logs["v2-none", 0] if record.value]
        counted = plain(rows(tmp_path / "demo" / "totals", "word", "count"))
        assert counted
        assert counted == plain(words_of(texts))

    assert "Most frequent words" in run(file)
    check()
    with odradek.open(tmp_path / "demo" / "log-dir") as logs:
        logs["v2-none", 0].append([odradek.Record(value=b"nothing is done twice")])
    assert ": 1 offsets" in run(file)
    check()


def test_windowed_wordcount(spark: SparkSession, tmp_path: Path) -> None:
    minute_ms = 60_000
    (tmp_path / "demo").mkdir()
    with odradek.open(tmp_path / "demo" / "log-dir") as logs:
        logs.create_topic("v2-none")
    file = example(tmp_path, "windowed-wordcount.toml")
    texts: list[tuple[int, str]] = []

    def append(*minutes: int) -> None:
        with odradek.open(tmp_path / "demo" / "log-dir") as logs:
            for minute in minutes:
                texts.append((minute, f"{WORDS[minute % len(WORDS)]} now now"))
                logs["v2-none", 0].append(
                    [odradek.Record(value=texts[-1][1].encode(), timestamp=DAY_MS * 20_000 + minute * minute_ms)]
                )

    append(0, 1, 0, 2)
    assert "Frequent words" in run(file)
    append(1, 9)
    run(file)
    counted = Counter(
        (minute, word) for minute, text in texts if minute < 9 for word in text.lower().split(" ") if word
    )
    found = {
        (row["minute"].minute, row["word"]): row["count"]
        for row in pyarrow.dataset.dataset(tmp_path / "demo" / "words-by-minute").to_table().to_pylist()
    }
    assert found == counted


class Layout(ABC):
    """Where a program of then kept how far it was."""

    address: str

    @abstractmethod
    def put(self, end: int) -> None: ...

    @abstractmethod
    def took(self) -> int:
        """Return the next offset, as the program of then reads it."""


class InRedis(Layout):
    """A text of ranges, a hash from partition to offset, or a text of such."""

    ADDRESSES: ClassVar = {
        "list": "?list=then",
        "hash": "?hash=offset:{topic}:then&topic=texts",
        "text": "?hash={topic}_kafkaOffset&topic=texts",
    }

    def __init__(self, kind: str, server: RedisServer) -> None:
        self._kind = kind
        self._redis: Any = redis.Redis(port=server.port, decode_responses=True)
        self.address = f"{server.url}{self.ADDRESSES[kind]}"

    def put(self, end: int) -> None:
        if self._kind == "list":
            text = f"[{{'topic': u'texts', 'partition': 0, 'fromOffset': 0L, 'untilOffset': {end}L}}]"
            self._redis.set("then", text)
        elif self._kind == "hash":
            self._redis.hset("offset:texts:then", "0", end)
        else:
            self._redis.set("texts_kafkaOffset", json.dumps({"0": end}))

    def took(self) -> int:
        if self._kind == "list":
            (held,) = ast.literal_eval(self._redis.get("then"))
            assert held.keys() == {"topic", "partition", "fromOffset", "untilOffset"}
            return int(held["untilOffset"])
        if self._kind == "hash":
            return int(self._redis.hgetall("offset:texts:then")["0"])
        return int(json.loads(self._redis.get("texts_kafkaOffset"))["0"])


class InZooKeeper(Layout):
    """The nodes of a group, nodes below a topic, or the text of one node."""

    ADDRESSES: ClassVar = {
        "group": ("/then", "/consumers/then/offsets/texts/0", b"%d"),
        "nodes": ("/app?node=/consumers/{topic}&topic=texts", "/app/consumers/texts/0", b"%d"),
        "node": ("?node=/offsets&topic=texts", "/offsets", b"0:%d"),
    }

    def __init__(self, kind: str, server: ZooKeeperServer) -> None:
        address, self._path, self._form = self.ADDRESSES[kind]
        self.address = f"zookeeper://{server.hosts}{address}"
        self._zookeeper: Any = KazooClient(server.hosts)
        self._zookeeper.start()

    def put(self, end: int) -> None:
        self._zookeeper.ensure_path(self._path)
        self._zookeeper.set(self._path, self._form % end)

    def took(self) -> int:
        data: bytes = self._zookeeper.get(self._path)[0]
        return int(data.removeprefix(self._form.removesuffix(b"%d")))


@pytest.mark.interop
@pytest.mark.every_case
@pytest.mark.parametrize("kinds", [("list", "hash", "group"), ("text", "nodes", "node")])
def test_direct_streams_and_jobs_take_turns_by_the_layout_of_then(
    kinds: tuple[str, ...],
    redis_server: RedisServer,
    zookeeper_server: ZooKeeperServer,
    spark: SparkSession,
    internal: odradek.testing.Broker,
    tmp_path: Path,
) -> None:
    sent = [record.value or b"" for record in fill(internal, "texts")]
    internal.create_topic("internal.texts", 1)
    changes = {"localhost:9092": internal.bootstrap_servers, "attempts = 5": "attempts = 0"}
    layouts: list[Layout] = []
    for name, kind in zip(("wordcount", "storage", "forwarding"), kinds, strict=True):
        in_redis = kind in InRedis.ADDRESSES
        layouts.append(InRedis(kind, redis_server) if in_redis else InZooKeeper(kind, zookeeper_server))
        layouts[-1].put(2)
        changes[f'name = "{name}"'] = f'name = "{name}"\noffsets = {{ store = "{layouts[-1].address}" }}'
    file = example(tmp_path, "direct-stream.toml", **changes)
    run(file)

    def check(done_now: list[bytes], end: int) -> None:
        left = [value.decode() for value in done_now]
        assert rows(tmp_path / "totals", "word", "count") == words_of(left)
        assert rows(tmp_path / "stored", "value") == Counter({(value,): 1 for value in done_now})
        assert [value for _, value, _, _ in content(internal, "internal.texts")] == done_now
        assert [layout.took() for layout in layouts] == [end] * 3

    check(sent[2:], 5)
    # The other program has a turn, and what it has done is not done again.
    more = [b"%d more" % number for number in range(5)]
    internal.logs["texts", 0].append([odradek.Record(None, value) for value in more])
    for layout in layouts:
        layout.put(8)
    run(file)
    check([*sent[2:], *more[3:]], 10)
