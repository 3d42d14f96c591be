"""Measures how long a broker takes to start: from the start of its program to its first Metadata answer.

    python benchmarks/starts.py [--rounds 20] [--partitions 100] [--in-process]

The folder has a topic with so many partitions. Each round starts `odradek serve` anew; the client does nothing but
connect and ask. The processor time is that of the broker's process until then; other programs disturb the time more.
With `--in-process` it is `odradek.testing.Broker` that starts: in a process that has only imported it, then again.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import odradek
from odradek.broker.protocol import encode_request

METADATA = 3


FRAME = encode_request(METADATA, 12, 1, None, {"topics": None, "include_topic_authorized_operations": False})


def ask(port: int) -> None:
    """Ask for all topics, as soon as the broker listens."""
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(FRAME)
                assert client.recv(1 << 16)
                return
        except ConnectionRefusedError:
            time.sleep(0.001)


def cpu_s(pid: int) -> float:
    """Return the processor time of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9


IN_PROCESS = """
import socket, sys, time
from odradek.testing import Broker

for _ in range(3):
    begun, cpu = time.perf_counter(), time.process_time()
    with Broker(sys.argv[1]) as broker:
        host, port = broker.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(bytes.fromhex(sys.argv[2]))
            assert client.recv(1 << 16)
        print(time.perf_counter() - begun, time.process_time() - cpu)
"""


def in_process(folder: str, rounds: int) -> None:
    """Print the times of brokers in processes of their own: of the first one, and of those after it."""
    found: tuple[list[list[float]], list[list[float]]] = [], []
    for _ in range(rounds):
        command = [sys.executable, "-c", IN_PROCESS, folder, FRAME.hex()]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        for number, line in enumerate(lines):
            found[number > 0].append([float(text) for text in line.split()])
    for which, times in zip(("first", "later"), found, strict=True):
        for what, taken in zip(("time", "processor time"), zip(*times, strict=True), strict=True):
            print(f"{which} broker, {what}: median {median(taken) * 1e3:.0f} ms, best {min(taken) * 1e3:.0f} ms")


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--in-process", action="store_true")
    arguments = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # With the bytecode of an installed program.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    seconds, cpu = [], []
    with tempfile.TemporaryDirectory() as folder:
        with odradek.open(folder) as logs:
            logs.create_topic("events", partitions=arguments.partitions)
        if arguments.in_process:
            in_process(folder, arguments.rounds)
            return
        command = [sys.executable, "-m", "odradek", "serve", folder, "--listeners", f"PLAINTEXT://127.0.0.1:{port}"]
        for number in range(arguments.rounds + 1):
            begun = time.perf_counter()
            with subprocess.Popen([*command, "--log-level", "error"], env=environment) as broker:
                ask(port)
                # The first round writes the bytecode.
                if number:
                    seconds.append(time.perf_counter() - begun)
                    cpu.append(cpu_s(broker.pid))
                broker.send_signal(signal.SIGTERM)
    for what, found in (("time", seconds), ("processor time", cpu)):
        print(f"{what}: median {median(found) * 1e3:.0f} ms, best {min(found) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
