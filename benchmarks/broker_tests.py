"""How long 1,000 tests with a Kafka broker take: each with a topic and a group of its own, by the pytest plugin.

    python benchmarks/broker_tests.py [--tests 1000] [--workers 2] [--runs 1] [--new-groups]

Each test produces records by confluent-kafka, consumes them in a group, commits, and looks at the group's offset. The
group is that of the plugin's fixture; with `--new-groups` it is one without offsets, for which librdkafka waits 100 ms.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import odradek

MODULE = """
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition


@pytest.fixture(scope="session")
def producer(kafka):
    return Producer({{"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0}})


@pytest.mark.parametrize("number", range({tests}))
def test_round_trip(kafka, kafka_topic, {group}, producer, number):
    for value in (b"a", b"b", b"c"):
        producer.produce(kafka_topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({{
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": {group},
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        # librdkafka waits for half of it before it connects to the broker that it has learned of.
        "reconnect.backoff.ms": 10,
    }})
    consumer.subscribe([kafka_topic])
    messages = []
    while len(messages) < 3:
        messages += consumer.consume(3 - len(messages), 30)
    assert [message.value() for message in messages] == [b"a", b"b", b"c"]
    consumer.commit(asynchronous=False)
    assert consumer.committed([TopicPartition(kafka_topic, 0)])[0].offset == 3
    consumer.close()
"""


def run(folder: Path, tests: int, workers: int, *, new_groups: bool) -> tuple[float, float]:
    group = "kafka_topic" if new_groups else "kafka_group"
    module = MODULE.format(tests=tests, group=group).replace("kafka_topic, kafka_topic", "kafka_topic")
    (folder / "test_round_trips.py").write_text(module)
    paths = [str(Path(odradek.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    # As an installed package has it.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    plugins = ["-p", "odradek.testing.pytest_plugin", "-p", "xdist"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-n", str(workers), str(folder)]
    started, used_s = time.monotonic(), _children_cpu_s()
    ended = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=False)
    took_s = time.monotonic() - started
    if ended.returncode or f"{tests} passed" not in ended.stdout:
        raise SystemExit(ended.stdout)
    return took_s, _children_cpu_s() - used_s


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description="How long tests with a Kafka broker take.")
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--new-groups", action="store_true")
    options = parser.parse_args()
    for number in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            took_s, cpu_s = run(Path(folder), options.tests, options.workers, new_groups=options.new_groups)
        told = f"run {number + 1}: {options.tests} tests, {options.workers} workers"
        print(f"{told}: {took_s:.1f} s, CPU {cpu_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
