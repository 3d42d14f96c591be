"""One Apache Kafka node, broker and controller in one, on a folder of the test.

A folder without `meta.properties` is formatted first, with Kafka's own storage tool; any other is started as it is,
with the node id that it names. Settings and output lie beside the log directory, in `<log_dir>.kafka/`, for Kafka takes
no foreign folder inside.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from peers.jars import JAVA, KeptClasses
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
        more_log_dirs: further log directories.
        heap: the size of Java's heap.
        jvm_options: other options; the default ones start soon but keep the optimising compiler off, so benchmarks
            should give none.
        port: its port; a free one if None.
    """

    name = "kafka"

    def __init__(
        self,
        tools: KafkaTools,
        log_dir: Path,
        config: Mapping[str, str] | None = None,
        *,
        more_log_dirs: Sequence[Path] = (),
        heap: str = "512m",
        jvm_options: Sequence[str] = QUICK_START,
        port: int | None = None,
    ) -> None:
        self.side = log_dir.with_name(f"{log_dir.name}.kafka")
        super().__init__(self.side / "server.out")
        self.tools = tools
        self.log_dir = log_dir
        self.more_log_dirs = list(more_log_dirs)
        self.port = free_port() if port is None else port
        self.controller_port = free_port()
        self.heap = heap
        self.jvm_options = list(jvm_options)
        self._classes = KeptClasses(tools.classpath) if self.jvm_options == list(QUICK_START) else None
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
            # Kafka answers some requests before it commits their records. Without a linger nothing comes in between.
            "group.coordinator.append.linger.ms": "0",
            "share.coordinator.append.linger.ms": "0",
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
        kept = self._classes.options() if self._classes is not None else []
        jvm = [f"-Xmx{self.heap}", *self.jvm_options, *kept, *logging]
        main = ["Attached", "kafka.Kafka", str(self.side / "server.properties")]
        return [*JAVA, *jvm, "-cp", self.tools.classpath, *main]

    def stop(self) -> None:
        """Ends it in order; the classes that it has loaded are kept for others."""
        super().stop()
        if self._classes is not None:
            self._classes.stopped()

    def ready(self) -> bool:
        """Asks for the metadata of all topics; one that is not PLAINTEXT only has to accept, and so do the others."""
        from odradek.errors import OdradekError
        from odradek.testing.wire import WireClient

        try:
            for listener in self.config["listeners"].split(","):
                socket.create_connection(("127.0.0.1", int(listener.rpartition(":")[2])), timeout=5).close()
            with WireClient("127.0.0.1", self.port, timeout_s=5) as client:
                if not self.config["listeners"].startswith("PLAINTEXT:"):
                    return True
                answer = client.call(METADATA_API_KEY, 1, {"topics": None})
        except (OSError, OdradekError):
            return False
        failed = [one for topic in answer.topics for one in (topic, *topic.partitions) if one.error_code]
        return bool(answer.brokers) and not failed
