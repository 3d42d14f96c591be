"""The public interface: what can be imported from `odradek`, and that what a caller meets there has a name there."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
import typing
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek import OdradekError, OptionError

FAMILIES = {
    odradek.FormatError,
    odradek.LogError,
    odradek.ProtocolError,
    odradek.BrokerError,
    odradek.OffsetStoreError,
    odradek.OptionError,
    odradek.PipelineError,
}

FUNCTIONS = [odradek.open, odradek.scan, odradek.dataset, odradek.consume, odradek.consume_async, odradek.open_store]

OF_THE_DIRECTORY = {
    "WritableLog.last_records",
    "WritableLog.offsets_to_checkpoint",
    "WritableLog.read_within",
    "Log.read_within",
    "WritableLog.producers",
    "WritableLogDirectory.checkpoint",
    "WritableLogDirectory.identity",
    "WritableLogDirectory.metadata_image",
    "LogDirectory.checkpoint",
}
"""What the parts of a log directory ask of each other: no caller has to name their types."""


def public_classes() -> list[type]:
    found = [getattr(odradek, name) for name in odradek.__all__]
    return [one for one in found if isinstance(one, type)]


def signatures() -> Iterator[tuple[str, Any]]:
    for function in FUNCTIONS:
        yield function.__name__, function
    for kind in public_classes():
        for name, member in inspect.getmembers_static(kind):
            if isinstance(member, property):
                member = member.fget
            elif isinstance(member, classmethod | staticmethod):
                member = member.__func__
            member = inspect.unwrap(member) if callable(member) else member
            if inspect.isfunction(member) and not name.startswith("_") and member.__module__.startswith("odradek"):
                yield f"{kind.__name__}.{name}", member


def classes_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("odradek"):
        yield hint
    for argument in typing.get_args(hint):
        yield from classes_in(argument)


INNER = {odradek.Segment, odradek.FileSystem}
"""What is handed out or taken as it is; of what it is made of in turn, only its own module knows."""


PUBLIC = {name: getattr(odradek, name) for name in odradek.__all__}


def type_hints(function: typing.Any) -> dict[str, typing.Any]:
    """The types of a signature; what its module imports only for type checkers is found by its name in odradek."""
    return typing.get_type_hints(function, localns={**PUBLIC, **inspect.unwrap(function).__globals__})


def test_every_type_of_a_public_signature_has_a_name_in_odradek() -> None:
    missing = []
    seen = 0
    for name, function in signatures():
        if name in OF_THE_DIRECTORY or any(name.startswith(f"{inner.__name__}.") for inner in INNER):
            continue
        seen += 1
        kinds = {kind for hint in type_hints(function).values() for kind in classes_in(hint)}
        missing += [(name, kind) for kind in kinds if getattr(odradek, kind.__name__, None) is not kind]
    assert not missing
    assert seen > 100


def test_every_public_signature_says_its_types() -> None:
    for name, function in signatures():
        parameters = inspect.signature(function).parameters
        hints = type_hints(function)
        assert "return" in hints, name
        assert set(parameters) - set(hints) <= {"self", "cls"}, name
        assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values()), f"{name} takes any keyword"


def test_all_names_are_there_and_only_those() -> None:
    assert odradek.__all__ == sorted(odradek.__all__)
    for name in odradek.__all__:
        assert getattr(odradek, name) is not None
        assert name in dir(odradek)
    with pytest.raises(AttributeError, match="absent"):
        odradek.absent  # noqa: B018


@pytest.mark.slow
def test_all_names_can_be_imported_where_pyarrow_is_missing() -> None:
    code = """import sys; sys.modules["pyarrow"] = None
from odradek import *
assert Record(b"k").key == b"k"
try:
    scan("data")
except ModuleNotFoundError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == 'odradek.scan needs pyarrow: pip install "odradek[arrow]"\n'


def modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(odradek.__path__, "odradek."):
        if not module.name.endswith("__main__"):
            yield module.name


def test_every_error_has_a_family_and_a_name_in_odradek() -> None:
    for name in modules():
        try:
            importlib.import_module(name)
        except ImportError:  # of what is not installed here, such as pyspark
            continue

    def below(kind: type) -> Iterator[type]:
        one: type
        for one in kind.__subclasses__():
            yield one
            yield from below(one)

    assert set(OdradekError.__subclasses__()) <= FAMILIES
    for kind in set(below(OdradekError)):
        if not kind.__module__.startswith("odradek"):
            continue
        assert sum(family in kind.__mro__ for family in FAMILIES) == 1, kind
        if kind.__module__ == "odradek.errors":
            assert getattr(odradek, kind.__name__) is kind
    # Those that only the parts below and beside the front door raise; their families are there.
    elsewhere = {kind.__name__ for kind in below(OdradekError) if kind.__module__.startswith("odradek.")}
    assert elsewhere - set(odradek.__all__) <= {
        "ApiError",
        "ChangedError",
        "DataLossError",
        "FencedError",
        "GroupIdNotFoundError",
        "InvalidTokenError",
        "NonEmptyGroupError",
        "RecordInputError",
        "RefusedError",
        "RefusedLoginError",
        "SparkStartError",
        "UnknownCoordinatorRecordError",
        "UnknownKeyError",
        "UnknownPathError",
        "WorkerEndedError",
        "WorkerLostError",
    }


def test_errors_are_exported_where_they_are_defined() -> None:
    source = (Path(odradek.__file__).parent / "errors.py").read_text(encoding="utf-8")
    names = {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    assert names <= set(odradek.__all__)


def test_an_option_is_named_typed_and_told_of() -> None:
    parameters = inspect.signature(odradek.open).parameters
    assert set(parameters) == {
        "path",
        "mode",
        "config",
        "background",
        "max_open_logs",
        "adopt",
        "strict",
        "sync",
        "files",
        "clock",
    }
    told = inspect.getdoc(odradek.open) or ""
    for name in parameters:
        assert f"\n    {name}: " in told


def test_the_settings_that_open_tells_of_have_the_defaults_that_it_tells(tmp_path: Path) -> None:
    from odradek.storage.directory.broker_config import BROKER_CONFIGS
    from odradek.storage.directory.maintenance import MaintenanceConfig
    from odradek.storage.topic_config import HOUR_MS

    told = " ".join((inspect.getdoc(odradek.open) or "").split())
    topics, maintenance = odradek.TopicConfig(), MaintenanceConfig()
    for name, default in {
        "log.retention.hours": topics.retention_ms // HOUR_MS,
        "log.retention.bytes": topics.retention_bytes,
        "log.segment.bytes": topics.segment_bytes,
        "log.roll.hours": topics.segment_ms // HOUR_MS,
        "log.cleanup.policy": topics.cleanup_policy[0],
        "compression.type": topics.compression_type,
        "message.max.bytes": topics.max_message_bytes,
        "log.flush.interval.messages": topics.flush_messages,
        "log.retention.check.interval.ms": maintenance.retention_check_interval_ms,
        "log.flush.offset.checkpoint.interval.ms": maintenance.recovery_point_checkpoint_interval_ms,
        "log.cleaner.enable": str(maintenance.cleaner_enable).lower(),
        "log.cleaner.dedupe.buffer.size": maintenance.cleaner.dedupe_buffer_size,
        "producer.id.expiration.ms": maintenance.producer_id_expiration_ms,
    }.items():
        assert name in BROKER_CONFIGS
        assert f"`{name}` ({default}" in told, name


@pytest.mark.parametrize(
    "options",
    [
        {"config": {}},
        {"background": True},
        {"max_open_logs": 1},
        {"adopt": True},
        {"sync": "off"},
        {"clock": lambda: 0},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_for_writing_are_refused_for_reading(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(
        OptionError, match=f'{next(iter(options))} applies only to a log directory that is open for appending.*mode="r"'
    ):
        odradek.open(tmp_path, mode="r", **options)
    with pytest.raises(odradek.LogError, match="mode 'a' or 'r', not 'w'"):
        odradek.open(tmp_path, mode="w")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        odradek.open(tmp_path, retention=5)  # type: ignore[call-overload]


def test_the_version_is_that_of_the_package() -> None:
    assert odradek.__version__ == version("odradek")


@pytest.mark.slow
def test_the_package_runs_as_a_program(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "odradek", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
        )

    assert run("--version").stdout.strip() == f"odradek {version('odradek')}"
    assert run("--help").stdout.startswith("Usage: odradek ")


def test_the_core_is_imported_without_what_only_some_need() -> None:
    later = {"asyncio", "pyarrow", "difflib", "importlib.metadata", "click"}
    code = f"import odradek, sys; print(*{later} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


def test_an_option_error_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="isolation is read_uncommitted or read_committed, not 'all'"):
        odradek.scan("data", isolation="all")  # type: ignore[arg-type]
