"""The options of a write: those of Spark's own Kafka sink, and a folder instead of a broker.

    topic                     of every row; otherwise the column `topic` says it
    transactional             whether all rows of a batch become visible at once; of a stream, exactly once
    kafka.transactional.id    the beginning of the transactional ids

Options whose names begin with `kafka.` are settings of the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from odradek.errors import OptionError
from odradek.records.compression import CODECS, Codec
from odradek.spark.options import local_folder, nearest

_WITHOUT_EFFECT = ("includeHeaders", "checkpointLocation", "queryName")
"""The first one has no effect on Spark's own sink either; the others are a stream's, and Spark hands them on."""
_NAMES = ("path", "topic", "transactional", "stagingPath", *_WITHOUT_EFFECT)
_REFUSED = {
    "key.serializer": "keys are bytes or text",
    "value.serializer": "values are bytes or text",
}


@dataclass(frozen=True)
class WriteOptions:
    """The options of one write, checked.

    Attributes:
        path: The log directory; None if a broker is written to.
        kafka: The options that start with `kafka.`, without that prefix.
        topic: The topic of every row; None if a column says it.
        is_transactional: Whether rows become visible in transactions.
        transactional_id: The beginning of the transactional ids; None if the sink chooses them.
        codec: How batches are compressed.
        staging_path: Where tasks keep rows until the driver appends them to the folder.
    """

    path: Path | None
    kafka: Mapping[str, str]
    topic: str | None
    is_transactional: bool
    transactional_id: str | None
    codec: Codec
    staging_path: Path | None

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
        """Check the options of a writer.

        Args:
            given: What the user gave; names are not case-sensitive.
            streaming: Whether they are those of a stream, which is transactional by default.

        Raises:
            OptionError: An option is unknown, missing or wrong.
        """
        options = {name.lower(): value for name, value in given.items()}
        known = {name.lower() for name in _NAMES}
        for name in sorted(options):
            if name not in known and not name.startswith("kafka."):
                hint = nearest(name, (*_NAMES, "kafka.bootstrap.servers"))
                raise OptionError(f"unknown option {name} of a write{hint}")
        kafka = {name[6:]: value for name, value in options.items() if name.startswith("kafka.")}
        path = options.get("path")
        if (path is None) == ("bootstrap.servers" not in kafka):
            raise OptionError("give either path (a log directory) or kafka.bootstrap.servers")
        for name, reason in _REFUSED.items():
            if name in kafka:
                raise OptionError(f"kafka.{name} cannot be set: {reason}")
        codec = kafka.pop("compression.type", "none")
        if codec not in CODECS:
            raise OptionError(f"kafka.compression.type must be one of {', '.join(CODECS)}, not {codec!r}")
        transactional_id = kafka.pop("transactional.id", None)
        is_transactional = _flag(options, "transactional", streaming or transactional_id is not None)
        if transactional_id == "":
            raise OptionError("kafka.transactional.id is empty")
        if transactional_id is not None and not is_transactional:
            raise OptionError("kafka.transactional.id names transactions, and transactional is false")
        topic = options.get("topic")
        if topic is not None and not (topic := topic.strip()):
            raise OptionError("topic is empty")
        if path is not None and kafka:
            raise OptionError(f"kafka.{min(kafka)} is for a broker, and path is a folder: leave it out")
        for name in ("path", "stagingPath"):
            if options.get(name.lower()) == "":
                raise OptionError(f"{name} is empty")
        staging = options.get("stagingpath")
        if path is None and staging is not None:
            raise OptionError("stagingPath is for a folder: rows go to a broker at once")
        return cls(
            path=None if path is None else _local(path, "path"),
            kafka=kafka,
            topic=topic,
            is_transactional=is_transactional,
            transactional_id=transactional_id,
            codec=CODECS[codec],
            staging_path=None if path is None else _staging(path, staging),
        )


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} must be one of true, false, not {text!r}")
    return text == "true"


def _local(path: str, name: str) -> Path:
    return Path(local_folder(path, name)).absolute()


def _staging(path: str, given: str | None) -> Path:
    folder = _local(path, "path")
    if given is None:
        return folder.parent / f"{folder.name}.odradek-staging"
    staging = _local(given, "stagingPath")
    if staging.is_relative_to(folder):
        raise OptionError(f"stagingPath is within {folder}, and Kafka does not start on one with a foreign folder")
    return staging
