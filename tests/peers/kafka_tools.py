"""Apache Kafka's command-line tools and its consumer, run one after another in one kept JVM.

`KafkaTools.run` takes any class with a main method; the other methods are the ones that many tests want. What a tool
prints comes back exactly, its exit code too. `java/kafka/ToolHost.java` is the other end of the pipe.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from odradek.kafka_version import KAFKA_VERSION
from peers.jars import JAVA, KeptClasses, classpath
from peers.process import PATIENCE

TOOL_TIMEOUT_S = 120 * PATIENCE
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]


@dataclass(frozen=True)
class ToolResult:
    """What a tool printed and how it ended."""

    command: tuple[str, ...]
    stdout: str
    stderr: str
    code: int

    def check(self) -> Self:
        """Returns itself.

        Raises:
            AssertionError: the exit code is not 0.
        """
        assert self.code == 0, f"{' '.join(self.command)} ended with {self.code}:\n{self.stdout}\n{self.stderr}"
        return self


class KafkaTools:
    """The tools. The JVM starts with the first call and ends with `close`, or with this process.

    Args:
        options: More options of the JVM.
        version: The version of Apache Kafka, with which brokers of these tools are started too.

    Attributes:
        version: As given.
    """

    def __init__(self, *options: str, version: str = KAFKA_VERSION) -> None:
        self._options = options
        self.version = version
        self.classpath = classpath("kafka", version)
        is_older = version < "4.4"
        self._config_command = "kafka.admin.ConfigCommand" if is_older else "org.apache.kafka.tools.ConfigCommand"
        self._host: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends the JVM."""
        with self._lock:
            self._end_host()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def run(self, main: str, *arguments: str | Path, timeout_s: float = TOOL_TIMEOUT_S) -> ToolResult:
        """Runs the main method of the class `main`.

        Raises:
            TimeoutError: it took longer than `timeout_s`; its JVM is ended.
            RuntimeError: the JVM died.
        """
        words = [main, *map(str, arguments)]
        request = b" ".join(base64.b64encode(word.encode()) for word in words) + b"\n"
        with self._lock:
            host = self._host if self._host is not None and self._host.poll() is None else self._start_host()
            assert host.stdin is not None
            deadline = time.monotonic() + timeout_s
            try:
                host.stdin.write(request)
                head = self._read_line(host, deadline)
                code, out_size, err_size = map(int, head.split())
                stdout = self._read(host, out_size, deadline)
                stderr = self._read(host, err_size, deadline)
            except (TimeoutError, OSError, ValueError) as error:
                self._end_host()
                kind = TimeoutError if isinstance(error, TimeoutError) else RuntimeError
                raise kind(f"{' '.join(words)}: {error}") from error
            except BaseException:
                # Interrupted, as by the time-out of a test: the next tool must not be given the rest of the answer.
                self._end_host()
                raise
        # What a terminal would show, byte for byte: no newline is translated and nothing is refused.
        text = [part.decode("utf-8", "surrogateescape") for part in (stdout, stderr)]
        return ToolResult(tuple(words), text[0], text[1], code)

    def _start_host(self) -> subprocess.Popen[bytes]:
        self._end_host()
        options = [*JVM, *self._options, *KeptClasses(self.classpath).options_to_use()]
        self._host = subprocess.Popen(
            [*JAVA, *options, "-cp", self.classpath, "ToolHost"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        return self._host

    def _end_host(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            assert host.stdin is not None
            assert host.stdout is not None
            host.kill()
            host.wait()
            host.stdin.close()
            host.stdout.close()

    @staticmethod
    def _read(host: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
        assert host.stdout is not None
        parts = bytearray()
        while len(parts) < size:
            readable, _, _ = select.select([host.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise TimeoutError("no answer in time")
            part = os.read(host.stdout.fileno(), min(size - len(parts), 1 << 20))
            if not part:
                raise OSError(f"the JVM ended ({host.wait()})")
            parts += part
        return bytes(parts)

    def _read_line(self, host: subprocess.Popen[bytes], deadline: float) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            line += self._read(host, 1, deadline)
        return line

    def dump_log(self, files: Path | str | Iterable[Path | str], *flags: str) -> ToolResult:
        """Runs DumpLogSegments on `files`, e.g. `dump_log(segment, "--print-data-log")`."""
        names = [files] if isinstance(files, (str, Path)) else list(files)
        return self.run("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, names)), *flags)

    def consume(
        self,
        bootstrap_servers: str,
        topics: str | Iterable[str],
        *,
        isolation: str = "read_uncommitted",
        config: Mapping[str, str] | None = None,
        timeout_s: int = 60 * PATIENCE,
    ) -> dict[str, dict[str, Any]]:
        """Reads `topics` (`"topic"` or `"topic:partition"`) from the beginning to the end with Kafka's own consumer.

        Returns:
            By `topic-partition`, in the form of the fixtures' `consumed-*.json`: `logStartOffset`, `highWatermark` (for
            `read_committed` the last stable offset) and `records`, byte strings in base64.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        settings = "\n".join(f"{name}={value}" for name, value in (config or {}).items())
        arguments = [bootstrap_servers, isolation, str(timeout_s), settings, *names]
        result = self.run("Consume", *arguments, timeout_s=timeout_s + 30).check()
        partitions: dict[str, dict[str, Any]] = {}
        for line in result.stdout.split("\n")[:-1]:
            entry = json.loads(line)
            name = f"{entry.pop('topic')}-{entry.pop('partition')}"
            if "offset" in entry:
                partitions[name]["records"].append(entry)
            else:
                partitions[name] = entry | {"records": []}
        return partitions

    def console_consume(
        self, bootstrap_servers: str, topic: str, *flags: str, tool: str = "ConsoleConsumer"
    ) -> ToolResult:
        """Runs ConsoleConsumer; give it an end, e.g. `"--from-beginning", "--timeout-ms", "5000"`."""
        main = f"org.apache.kafka.tools.consumer.{tool}"
        return self.run(main, "--bootstrap-server", bootstrap_servers, "--topic", topic, *flags)

    def consumed_places(
        self, bootstrap_servers: str, topic: str, count: int, *flags: str, tool: str = "ConsoleConsumer"
    ) -> list[tuple[int, int]]:
        """Runs ConsoleConsumer, or ConsoleShareConsumer, for some records; returns their partitions and offsets."""
        ends = ("--max-messages", str(count), "--timeout-ms", str(round(TOOL_TIMEOUT_S * 500)))
        wanted = ("print.partition=true", "print.offset=true", "print.value=false")
        shown = [word for one in wanted for word in ("--formatter-property", one)]
        printed = self.console_consume(bootstrap_servers, topic, *flags, *ends, *shown, tool=tool).check().stdout
        return [(int(one), int(other)) for one, other in re.findall(r"Partition:(\d+)\tOffset:(\d+)", printed)]

    def get_offsets(self, bootstrap_servers: str, *flags: str) -> dict[tuple[str, int], int]:
        """Runs GetOffsetShell, e.g. with `"--topic", "t", "--time", "earliest"`; offsets by topic and partition."""
        tool = "org.apache.kafka.tools.GetOffsetShell"
        result = self.run(tool, "--bootstrap-server", bootstrap_servers, *flags).check()
        fields = (line.rsplit(":", 2) for line in result.stdout.splitlines())
        return {(topic, int(partition)): int(offset) for topic, partition, offset in fields}

    def consumer_group_describe(self, bootstrap_servers: str, group: str, *flags: str) -> list[dict[str, str]]:
        """Runs ConsumerGroupCommand --describe; a dictionary a row, by the table's own headings (GROUP, LAG, ...)."""
        tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        arguments = ["--bootstrap-server", bootstrap_servers, "--describe", "--group", group, *flags]
        lines = [line.split() for line in self.run(tool, *arguments).check().stdout.splitlines() if line.strip()]
        tables = [number for number, words in enumerate(lines) if words[0] == "GROUP"]
        if not tables:
            return []
        heading = lines[tables[0]]
        return [dict(zip(heading, words, strict=False)) for words in lines[tables[0] + 1 :] if words[0] == group]

    def topics(self, bootstrap_servers: str, *flags: str) -> ToolResult:
        """Runs TopicCommand, e.g. with `"--describe"` or `"--create", "--topic", "t", "--partitions", "3"`."""
        return self.run("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap_servers, *flags)

    def configs(self, bootstrap_servers: str, *flags: str) -> ToolResult:
        """Runs ConfigCommand, e.g. with `"--describe", "--all", "--topic", "t"`."""
        return self.run(self._config_command, "--bootstrap-server", bootstrap_servers, *flags)

    def format_log_dir(self, server_properties: Path, cluster_id: str, *flags: str) -> None:
        """Runs StorageTool format on the folders that `server_properties` names."""
        arguments: list[str | Path] = ["format", "--cluster-id", cluster_id, "--config", server_properties, *flags]
        self.run("kafka.tools.StorageTool", *arguments).check()
