"""The options of a console: what it shows, to whom, and what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.inspection.decoding import ValueDecoder
from odradek.sources.redaction import Redaction

JobRows = Sequence[Mapping[str, Any]]
"""Jobs as `odradek pipeline status --format jsonl` prints them, each also with its `file`, its topic of `dead_letters`
or None, `is_well`, and a `failure` of None. A job that cannot be read has only `name`, `file` and `failure`."""


@dataclass(frozen=True)
class ConsoleOptions:
    """How a console is run.

    Attributes:
        address: The log directory, or `kafka://host:port`.
        config: Settings of the connection to a broker.
        redact: What is left out of records, as `odradek dump --redact` has it.
        values: Decodes values; without it they are shown as JSON or text where they are that, else as bytes.
        password: What a reader has to know; None for everybody who reaches the port.
        hosts: Names by which browsers may call the console, besides `localhost` and addresses of IP.
        writes: Whether readers can set positions of groups.
        pipelines: Each returns the status of the jobs of one file.
        history: The file that keeps sizes and lags over time; None keeps them in memory.
    """

    address: str
    config: Mapping[str, str] = field(default_factory=dict)
    redact: tuple[str, ...] = ()
    values: ValueDecoder | None = None
    password: str | None = None
    hosts: frozenset[str] = frozenset()
    writes: bool = False
    history: Path | None = None
    pipelines: tuple[Callable[[], JobRows], ...] = ()

    def redaction(self) -> Redaction:
        """Return what leaves parts out of records, for one thread."""
        return Redaction(self.redact, self.values)
