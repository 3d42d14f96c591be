"""`odradek conformance` on Apache Kafka 4.3.1, which passes each check and so makes it true, and on our broker."""

from __future__ import annotations

import json
import subprocess
import sys

from odradek.testing.conformance.suite import checks
from peers.conformance import documented_differences
from peers.fixtures import BrokerFactory
from peers.process import PATIENCE


def test_the_brokers_differ_only_where_the_documentation_says_so(any_broker: BrokerFactory) -> None:
    broker = any_broker(config={"auto.create.topics.enable": "true"})
    command = [sys.executable, "-m", "odradek", "conformance", broker.bootstrap_servers, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600 * PATIENCE)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["name"] for result in results] == [one.name for one in checks()], done.stderr
    others = {result["name"]: result["reason"] for result in results if result["outcome"] != "ok"}
    differences = documented_differences() if broker.name == "odradek" else set()
    assert {name: reason for name, reason in others.items() if name not in differences} == {}
    assert differences <= set(others), "it does not differ any more"
