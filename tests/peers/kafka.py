"""One Apache Kafka 4.3.1 node, broker and controller in one, on a folder of the test.

A folder without `meta.properties` is formatted first, with Kafka's own storage tool; any other is started as it is,
with the node id that it names. Settings and output lie beside the log directory, in `<log_dir>.kafka/`, for Kafka takes
no foreign folder inside.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from peers.jars import JAVA
from peers.java_properties import read_properties, write_properties
from peers.kafka_tools import KafkaTools
from peers.process import Server, free_port

CLUSTER_ID = "T2RyYWRla0ludGVyb3BUZQ"
METADATA_API_KEY = 3
NEVER_KILLED = {"broker.session.timeout.ms": "18000"}
"""For a broker that no test kills: a pause of its machine does not cost it its partitions."""
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaBroker(Server):
    """A broker. `config` may be changed between a stop and the next start.

    Args:
        tools: the tools, which format the folder.
        log_dir: the log directory, made and formatted if absent.
        config: settings that replace those of `default_config`, or add to them.
        port: where clients connect; a free one if not given.
        more_log_dirs: further log directories.
        heap: the size of Java's heap.
        jvm_options: other options; the default ones start soon but keep the optimising compiler off, so benchmarks
            should give none.
        leaders: whether `start` waits until every partition has its leader.
    """

    name = "kafka"

    def __init__(
        self,
        tools: KafkaTools,
        log_dir: Path,
        config: Mapping[str, str] | None = None,
        *,
        port: int | None = None,
        more_log_dirs: Sequence[Path] = (),
        heap: str = "512m",
        jvm_options: Sequence[str] = QUICK_START,
        leaders: bool = True,
    ) -> None:
        self.side = log_dir.with_name(f"{log_dir.name}.kafka")
        super().__init__(self.side / "server.out")
        self.tools = tools
        self.log_dir = log_dir
        self.more_log_dirs = list(more_log_dirs)
        self.port = port or free_port()
        self.controller_port = free_port()
        self.heap = heap
        self.jvm_options = list(jvm_options)
        self.leaders = leaders
        self.config = self.default_config() | dict(config or {})

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def node_id(self) -> int:
        """The id that the folder names, 1 if it names none."""
        meta = self.log_dir / "meta.properties"
        return int(read_properties(meta.read_text(encoding="utf-8")).get("node.id", "1")) if meta.exists() else 1

    def default_config(self) -> dict[str, str]:
        """Kafka's defaults, but for one small node that keeps what it is given."""
        node_id = self.node_id
        return {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{node_id}@127.0.0.1:{self.controller_port}",
            "log.dirs": ",".join(str(path) for path in (self.log_dir, *self.more_log_dirs)),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # The records of the tests carry old timestamps; by default they would be gone within a minute.
            "log.retention.ms": "-1",
            "offsets.retention.minutes": "5256000",
            # After a kill the node may register again only when its old session is over.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "num.network.threads": "2",
            "num.io.threads": "2",
            "num.recovery.threads.per.data.dir": "1",
            "log.cleaner.dedupe.buffer.size": "16777216",
        }

    def prepare(self) -> None:
        """Writes the settings, and formats the folder if it is not yet Kafka's."""
        self.side.mkdir(parents=True, exist_ok=True)
        for path in (self.log_dir, *self.more_log_dirs):
            path.mkdir(parents=True, exist_ok=True)
        properties = write_properties(self.side / "server.properties", self.config)
        if not (self.log_dir / "meta.properties").exists():
            self.tools.format_log_dir(properties, CLUSTER_ID)

    def command(self) -> list[str]:
        """Returns the command line."""
        logging = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        jvm = [f"-Xmx{self.heap}", *self.jvm_options, *logging]
        main = ["Attached", "kafka.Kafka", str(self.side / "server.properties")]
        return [*JAVA, *jvm, "-cp", self.tools.classpath, *main]

    def ready(self) -> bool:
        """Asks for the metadata of all topics; a listener that is not PLAINTEXT only has to accept."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                if not self.config["listeners"].startswith("PLAINTEXT:"):
                    return True
                return _all_led(_ask_metadata(connection)) or not self.leaders
        except (OSError, EOFError):
            return False


def _ask_metadata(connection: socket.socket) -> bytes:
    """Sends Metadata v1 for all topics (null list) and returns the answer's body."""
    request = struct.pack(">hhihi", METADATA_API_KEY, 1, 7, -1, -1)
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, size)[4:]


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError("the broker closed the connection")
        data += part
    return data


def _all_led(body: bytes) -> bool:
    """Says whether a Metadata v1 answer names a broker, and no error for any topic or partition."""
    position = 0

    def take(layout: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from(f">{layout}", body, position)
        position += struct.calcsize(f">{layout}")
        return int(value)

    def skip_string() -> None:
        nonlocal position
        length = take("h")
        position += max(length, 0)

    brokers = take("i")
    for _ in range(brokers):
        take("i")
        skip_string()
        take("i")
        skip_string()
    take("i")
    errors = 0
    for _ in range(take("i")):
        errors |= take("h")
        skip_string()
        take("b")
        for _ in range(take("i")):
            errors |= take("h")
            take("i")
            take("i")
            for _ in range(2):
                count = take("i")
                position += 4 * count
    return brokers > 0 and not errors
