"""What `pipeline check` finds about places: folders, ports, Spark's master, the limits of a broker."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.errors import JobError, SinkError
from odradek.spark.options import nearest
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.metrics_server import open_server

if TYPE_CHECKING:
    from odradek.kafka.client import BrokerClient

PATIENCE_MS = 1000
_MASTER = re.compile(r"local(\[(\d+|\*)( *, *\d+)?\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+")
_MOST_TIMEOUT = "transaction.max.timeout.ms"


def folder_problem(path: Path) -> str | None:
    """Return why a folder cannot be written to, or created, or None."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir():
        return f"{shown(there)}: not a folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{shown(there)}: this folder cannot be written to: change its rights, or give another path"
    return None


def remote_folder_problem(uri: FolderUri) -> str | None:
    """Return why the file system of a folder does not answer, or None."""
    from pyarrow.fs import FileSelector

    try:
        files, path = uri.open()
        with uri.errors():
            files.get_file_info(FileSelector(path, allow_not_found=True))
    except SinkError as error:
        return str(error)
    return None


def listener_problem(host: str, port: int) -> str | None:
    """Return why nothing can listen at an address, or None."""
    try:
        open_server(host, port).server_close()
    except JobError as error:
        return error.reason
    return None


def master_problem(master: str) -> str | None:
    """Return what is wrong with the URL of Spark's master, or None."""
    if _MASTER.fullmatch(master):
        return None
    near = nearest(master.partition("[")[0], ["local", "yarn", "spark", "k8s"])
    return f"local, local[2], local[*], yarn, spark://HOST:PORT or k8s://HOST:PORT, not {master!r}{near}"


def patient_client(kafka: Mapping[str, str]) -> BrokerClient:
    """Return a client of a broker that waits for it no longer than `PATIENCE_MS`."""
    from odradek.kafka.client import BrokerClient
    from odradek.kafka.settings import BrokerSettings

    settings = BrokerSettings.parse(kafka)
    return BrokerClient(replace(settings, timeout_ms=min(settings.timeout_ms, PATIENCE_MS)))


def timeout_problem(kafka: Mapping[str, str]) -> str | None:
    """Return that a broker allows no transaction to be open for as long as a sink asks for, or None.

    Raises:
        BrokerUnavailableError: The broker cannot be reached in time.
    """
    from odradek.kafka.configs import BROKER_RESOURCE, describe_configs
    from odradek.kafka.settings import BrokerSettings

    wanted_ms = BrokerSettings.parse(kafka).transaction_timeout_ms
    client = patient_client(kafka)

    def ask() -> list[str]:
        node = client.nodes()[0]
        (result,) = describe_configs(client, BROKER_RESOURCE, [node], node_id=node, keys=[_MOST_TIMEOUT])
        # A broker that does not tell its settings gives none.
        return [entry.value for entry in result.configs if entry.name == _MOST_TIMEOUT]

    with client:
        found = client.attempt("looking for its settings", ask)
    if found and wanted_ms > int(found[0]):
        return f"the broker allows at most {found[0]} ms ({_MOST_TIMEOUT}), not {wanted_ms}"
    return None


def shown(path: Path) -> str:
    """Return a path relative to the current directory, if it is below it."""
    folder = Path.cwd()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
