"""Records for which a view fails: an error that names them, or put aside, each once."""

from __future__ import annotations

import json
import re
import shutil
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import odradek
import odradek.testing
from odradek.cli.app import main
from odradek.errors import JobError
from odradek.offsets.store import open_store
from odradek.spark.options import SourceOptions
from odradek.spark.pipeline import BatchReport, Job, Pipeline, poison
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.claimed_store import ClaimedStore
from odradek.spark.pipeline.letters import replay_job, wanted_sql
from odradek.spark.pipeline.parquet import ParquetSink
from odradek.spark.pipeline.run_note import newest_note
from peers.process import free_port

pytestmark = pytest.mark.usefixtures("signals_as_before")

JOB = """
name = "numbers"
on_invalid = "dead-letter"

[source]
path = "source"
subscribe = "orders"

[offsets]
store = "file:offsets.json"

[dead_letters]
topic = "failed"
path = "dead"

[[transform]]
view = "numbers"
sql = "SELECT topic, partition, offset, CAST(CAST(value AS STRING) AS INT) AS number FROM records"

[[sink]]
type = "parquet"
view = "numbers"
path = "numbers"
"""
FUNCTIONS = """
def number_of(value):
    if value == b"nine":
        raise ValueError("nine is no number here")
    return None if value is None else int(value)
"""
UDF = """
[[udf]]
name = "number_of"
function = "poison_functions:number_of"
returns = "int"
"""
VALUES = [b"0", b"1", b"nine", b"3"]
STATEFUL = (
    JOB.partition("[[transform]]")[0]
    + """
[state]
path = "state"
output_mode = "update"
partitions = 1

[[transform]]
view = "parsed"
sql = "SELECT number_of(value) AS number FROM records"

[[transform]]
view = "numbers"
sql = "SELECT number, count(*) AS count FROM parsed GROUP BY number"

[[sink]]
type = "parquet"
view = "numbers"
path = "numbers"
"""
    + UDF
)


NAMES = ["__odradek.errors." + name for name in ("topic", "partition", "offset", "message", "job")]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with odradek.open(tmp_path / "source") as logs:
        logs.create_topic("orders", partitions=2)
        logs["orders", 0].append([odradek.Record(b"k", value, [("h", b"1")], 5) for value in VALUES])
        logs["orders", 1].append([odradek.Record(None, b"7")])
    with odradek.open(tmp_path / "dead") as logs:
        logs.create_topic("failed", partitions=2)
    (tmp_path / "poison_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("poison_functions", None)


def run(folder: Path, spark: SparkSession, text: str = JOB) -> list[BatchReport]:
    reports: list[BatchReport] = []
    Pipeline(Job.parse(text, folder), spark).run(reports.append)
    return reports


def numbers(folder: Path) -> list[int]:
    return sorted(pq.read_table(folder / "numbers", columns=["number"]).column("number").to_pylist())


def letters(folder: Path) -> list[tuple[bytes | None, bytes | None, dict[str, bytes | None]]]:
    with odradek.open(folder / "dead") as logs:
        records = logs["failed", 0].read(isolation="read_committed")
        return [(record.key, record.value, dict(record.headers)) for record in records]


def places(folder: Path) -> list[int]:
    found = [letter for letter in letters(folder) if letter[2].get("__odradek.errors.job") == b"numbers"]
    assert all(headers["__odradek.errors.topic"] == b"orders" for _, _, headers in found)
    return [int(headers["__odradek.errors.offset"] or b"") for _, _, headers in found]


class CrashError(BaseException):
    pass


def crash(*_: object) -> None:
    raise CrashError


def test_each_goes_to_the_dead_letters_once_whatever_crashes(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = ParquetSink.write

    def crash_after_the_letters(sink: ParquetSink, batch: object) -> None:
        if letters(folder):
            raise CrashError
        write(sink, batch)  # type: ignore[arg-type]

    for target, name, crashes in ((ParquetSink, "write", crash_after_the_letters), (ClaimedStore, "done", crash)):
        with monkeypatch.context() as patched:
            patched.setattr(target, name, crashes)
            with pytest.raises(CrashError):
                run(folder, spark)
    run(folder, spark)
    # What comes later is a batch of its own.
    with odradek.open(folder / "source") as logs:
        logs["orders", 0].append([odradek.Record(None, value) for value in (b"nine", b"31")])
    (report,) = run(folder, spark)
    assert report.refused == 1
    assert numbers(folder) == [0, 1, 3, 7, 31]
    assert places(folder) == [2, 4]
    key, value, headers = letters(folder)[0]
    assert (key, value, headers["h"], headers["__odradek.errors.partition"]) == (b"k", b"nine", b"1", b"0")
    assert b"CAST_INVALID_INPUT" in (headers["__odradek.errors.message"] or b"")
    assert headers["__odradek.errors.job"] == b"numbers"


def test_a_function_that_raises(folder: Path, spark: SparkSession) -> None:
    run(folder, spark, JOB.replace("CAST(CAST(value AS STRING) AS INT)", "number_of(value)") + UDF)
    assert numbers(folder) == [0, 1, 3, 7]
    ((_, _, headers),) = letters(folder)
    assert b"nine is no number here" in (headers["__odradek.errors.message"] or b"")


def test_dead_letters_go_back_once_whatever_crashes(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder, spark)
    theirs = [("__odradek.errors." + name, b"0") for name in ("topic", "partition", "offset", "message")]
    with odradek.open(folder / "dead") as logs:
        strangers = [odradek.Record(b"x"), odradek.Record(b"y", headers=[*theirs, ("__odradek.errors.job", b"other")])]
        logs["failed", 0].append(strangers)
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    job = Job.read(folder / "job.toml")
    with monkeypatch.context() as patched:
        patched.setattr(ClaimedStore, "done", crash)
        with pytest.raises(CrashError):
            Pipeline(replay_job(job, (folder / "numbers.replayed.json").as_uri()), spark).run()
    (folder / "job.toml").write_text(JOB.replace('"numbers"', '"renamed"', 1), encoding="utf-8")
    replay = ["pipeline", "replay-dead-letters", str(folder / "job.toml")]
    for options, told in (
        ([], r"0 .* 3 .* numbers, other "),
        (["--letters-of", "numbers"], r"1 .* 2 .* other "),
        ([], ""),
    ):
        replay += options
        ended = CliRunner().invoke(main, replay)
        assert ended.exit_code == 0, ended.output
        assert re.search(told, ended.output), ended.output
    with odradek.open(folder / "source", "r") as logs:
        first, *_, back = logs["orders", 0].read(isolation="read_committed")
        assert back.offset == len(VALUES)
        assert (back.key, back.value, back.headers, back.timestamp) == (b"k", b"nine", first.headers, first.timestamp)
        assert len(list(logs["orders", 1].read(isolation="read_committed"))) == 1
    # The job reads it again, and it fails again.
    run(folder, spark)
    assert places(folder) == [2, len(VALUES)]


def test_a_letter_that_cannot_go_back_holds_up_no_other(folder: Path, spark: SparkSession) -> None:
    def letter(value: bytes, *of: bytes | None, job: bytes = b"numbers") -> odradek.Record:
        return odradek.Record(b"k", value, headers=list(zip(NAMES, (*of, b"2", b"failed", job), strict=True)))

    orders = b"orders"
    with odradek.open(folder / "dead") as logs:
        logs["failed", 0].append(
            [
                letter(b"before", orders, b"1"),
                *(letter(b"no letter", *of) for of in ((b"\xff", b"0"), (orders, b"x"), (orders, b"99999999999"))),
                *(letter(b"no letter", *of) for of in ((None, b"0"), (orders, None))),
                odradek.Record(b"k", b"swapped", headers=[(name, b"numbers") for name in reversed(NAMES)]),
                letter(b"of another", orders, b"0", job=b"\xff"),
                letter(b"no letter of the source", b"payments", b"0"),
                letter(b"gone", orders, b"7"),
                letter(b"after", orders, b"1"),
            ]
        )
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    replay = ["pipeline", "replay-dead-letters", str(folder / "job.toml")]

    def back() -> list[bytes | None]:
        with odradek.open(folder / "source", "r") as logs:
            return [record.value for record in logs["orders", 1].read(isolation="read_committed")][1:]

    ended = CliRunner().invoke(main, replay)
    assert (ended.exit_code, back()) == (3, [b"before"]), ended.output
    assert re.search(r"orders has no partition 7.*of dead letters that are sent back: --skip-invalid", ended.output)
    ended = CliRunner().invoke(main, [*replay, "--skip-invalid"])
    assert (ended.exit_code, back()) == (0, [b"before", b"after"]), ended.output
    assert re.search(r"3 .* 2 .* 6 ", ended.output), ended.output
    # Nor do letters that retention has taken.
    with odradek.open(folder / "dead") as logs:
        log = logs["failed", 0]
        log.append([letter(b"taken", orders, b"1"), letter(b"kept", orders, b"1")])
        log.delete_records(log.log_end_offset - 1)
    ended = CliRunner().invoke(main, replay)
    assert (ended.exit_code, back()) == (0, [b"before", b"after", b"kept"]), ended.output
    # Nor does a topic of letters that was made anew.
    with odradek.open(folder / "dead") as logs:
        logs.delete_topic("failed")
        # A stranger's timestamp of the year 10000 holds up none either.
        logs.create_topic("failed", config={"message.timestamp.after.max.ms": str(2**63 - 1)})
        far = odradek.Record(None, b"far", timestamp=253_402_300_800_000)
        logs["failed", 0].append([far, letter(b"anew", orders, b"1")])
    ended = CliRunner().invoke(main, replay)
    assert (ended.exit_code, "start-over FILE failed" in ended.output) == (3, True), ended.output
    ended = CliRunner().invoke(main, ["pipeline", "start-over", str(folder / "job.toml"), "failed"])
    assert ended.output == "numbers: failed-0 begins at offset 0\n"
    ended = CliRunner().invoke(main, replay)
    assert (ended.exit_code, back()) == (0, [b"before", b"after", b"kept", b"anew"]), ended.output


def test_letters_go_only_where_the_source_reads(spark: SparkSession) -> None:
    places = [("orders", 0), ("orders", 1), ("payments", 0), ("__consumer_offsets", 0), ("o" * 250, 0), (None, 0)]
    rows = spark.createDataFrame(places, "odradek_topic string, odradek_partition int")
    for option, asked_for, wanted in (
        ("subscribe", "orders, other", [True, True, False, False, False, False]),
        ("subscribePattern", "^o|s$", [True, True, True, False, False, False]),
        ("assign", '{"orders": [0]}', [True, False, False, False, False, False]),
    ):
        source = SourceOptions.parse({"path": "source", option: asked_for})
        assert [row[0] for row in rows.selectExpr(wanted_sql(source)).collect()] == wanted, option


def test_dead_letters_of_a_broker_are_counted_and_go_back(spark: SparkSession, tmp_path: Path) -> None:
    port = free_port()
    pages: list[str] = []

    def fetch(_: BatchReport) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            pages.append(answer.read().decode())

    with odradek.testing.Broker() as broker:
        broker.create_topic("orders", 2)
        broker.create_topic("failed")
        place = f'kafka.bootstrap.servers = "{broker.bootstrap_servers}"'
        broker.logs["orders", 1].append([odradek.Record(b"k", value, [("h", None)], 5) for value in (b"1", b"nine")])
        text = JOB.replace('path = "source"', place).replace('path = "dead"', place)
        (tmp_path / "job.toml").write_text(text + f'[metrics]\nlisten = "127.0.0.1:{port}"\n', encoding="utf-8")
        Pipeline(Job.read(tmp_path / "job.toml"), spark).run(fetch)
        assert 'odradek_pipeline_refused_records_total{job="numbers"} 1.0' in pages[0]
        status = CliRunner().invoke(main, ["pipeline", "status", str(tmp_path / "job.toml")])
        assert "2 offsets in " in status.output
        assert ", 1 records refused" in status.output
        (letter,) = broker.logs["failed", 0].read(isolation="read_committed")
        assert (letter.key, letter.value, letter.timestamp) == (b"k", b"nine", 5)
        for _ in range(2):
            ended = CliRunner().invoke(main, ["pipeline", "replay-dead-letters", str(tmp_path / "job.toml")])
            assert ended.exit_code == 0, ended.output
        # Without its file, the transactions know what they have sent.
        (tmp_path / "numbers.replayed.json").unlink()
        ended = CliRunner().invoke(main, ["pipeline", "replay-dead-letters", str(tmp_path / "job.toml")])
        assert ended.exit_code == 0, ended.output
        _, before, back = broker.logs["orders", 1].read(isolation="read_committed")
        assert (back.key, back.value, back.headers, back.timestamp) == (b"k", b"nine", before.headers, 5)
        assert not list(broker.logs["orders", 0].read())


def test_skipped_records_are_counted(folder: Path, spark: SparkSession) -> None:
    text = JOB.replace('"dead-letter"', '"skip"').replace('[dead_letters]\ntopic = "failed"\npath = "dead"\n', "")
    (report,) = run(folder, spark, text)
    assert report.refused == 1
    assert numbers(folder) == [0, 1, 3, 7]
    assert letters(folder) == []
    assert json.loads((folder / "offsets.json").read_text())


def test_an_error_names_the_record(folder: Path, spark: SparkSession) -> None:
    text = JOB.replace('on_invalid = "dead-letter"', "").replace('[dead_letters]\ntopic = "failed"\npath = "dead"', "")
    with pytest.raises(JobError, match=r"the record at offset 2 of orders-0 cannot be processed: .*CAST_INVALID_INPUT"):
        run(folder, spark, text)
    assert not (folder / "numbers").exists() or not list((folder / "numbers").glob("*.parquet"))


def test_a_value_that_cannot_be_decoded(folder: Path, spark: SparkSession) -> None:
    (folder / "order.ddl").write_text("id INT", encoding="utf-8")
    with odradek.open(folder / "source") as logs:
        logs.create_topic("json")
        logs["json", 0].append([odradek.Record(None, value) for value in (b'{"id": 1}', b"{", b'{"id": 3}')])
    text = JOB.replace('"orders"', '"json"').replace("CAST(CAST(value AS STRING) AS INT)", "data.id")
    text += '\n[source.value]\nformat = "json"\nschema = "order.ddl"\noptions = { mode = "FAILFAST" }\n'
    run(folder, spark, text)
    assert numbers(folder) == [1, 3]
    ((_, value, _),) = letters(folder)
    assert value == b"{"


def test_what_is_not_one_records_fault_is_an_error(folder: Path, spark: SparkSession) -> None:
    text = JOB.replace("AS STRING) AS INT) AS number", "AS STRING) AS STRING) AS number").replace(
        "FROM records", "FROM records WHERE assert_true((SELECT count(*) FROM records) < 3) IS NULL"
    )
    with pytest.raises(JobError, match=r"assert_true|is not true"):
        run(folder, spark, text)
    assert letters(folder) == []


@pytest.mark.every_case
@pytest.mark.parametrize("decorated", ["", "@udf('int')\n"], ids=["plain", "decorated"])
@pytest.mark.laboratory  # unit/spark/test_told_function.py asks the same of the function
def test_an_error_whose_text_cannot_be_sent(folder: Path, spark: SparkSession, decorated: str) -> None:
    """Spark's worker fails at a lone surrogate, and waits for the driver, which waits for the worker."""
    text = FUNCTIONS.replace('"nine is no number here"', 'value.decode() + "\\udcff"').replace(
        "def ", f"{decorated}def "
    )
    (folder / "poison_functions.py").write_text(f"from pyspark.sql.functions import udf\n{text}", encoding="utf-8")
    run(
        folder,
        spark,
        JOB.replace("CAST(CAST(value AS STRING) AS INT)", "number_of(value)")
        + UDF.replace('returns = "int"\n', "" if decorated else 'returns = "int"\n'),
    )
    assert numbers(folder) == [0, 1, 3, 7]
    ((_, value, headers),) = letters(folder)
    assert value == b"nine"
    assert (headers["__odradek.errors.message"] or b"").startswith(rb"RuntimeError: ValueError: nine\udcff (")


OURS = b"odradek.errors.JobError: nine"
HOSTILE = [
    OURS,
    b"x\n" + OURS + b"\n",
    b'Traceback (most recent call last):\n  File "a", line 1, in f\n' + OURS,
    b"Python worker exited unexpectedly (crashed)",
    b"Python worker failed to connect back.",
    b"org.apache.spark.SparkException: Python worker failed to connect back.",
]


@pytest.mark.parametrize(
    "call",
    [
        "number_of(value)",
        "CAST(CAST(value AS STRING) AS INT)",
        # The text of an error of Spark's own, from its first character on.
        "IF(TRY_CAST(CAST(value AS STRING) AS INT) IS NULL, RAISE_ERROR(CAST(value AS STRING)), INT(STRING(value)))",
    ],
    ids=["function", "cast", "raise_error"],
)
def test_what_a_record_says_is_never_taken_for_another_error(folder: Path, spark: SparkSession, call: str) -> None:
    with odradek.open(folder / "source") as logs:
        logs["orders", 0].append([odradek.Record(None, value) for value in HOSTILE])
    text = FUNCTIONS.replace('if value == b"nine":', "if not value.isdigit():").replace(
        '"nine is no number here"', "value.decode()"
    )
    (folder / "poison_functions.py").write_text(text, encoding="utf-8")
    restarts: list[object] = []
    job = Job.parse(JOB.replace("CAST(CAST(value AS STRING) AS INT)", call) + UDF, folder)
    Pipeline(job, spark, on_restart=lambda error, _: restarts.append(error)).run()
    assert not restarts
    assert sorted(value or b"" for _, value, _ in letters(folder)) == sorted([b"nine", *HOSTILE])


def test_an_error_of_an_iterator_whose_text_cannot_be_sent(folder: Path, spark: SparkSession) -> None:
    text = """
from collections.abc import Iterator
import pandas as pd
from pyspark.sql.functions import pandas_udf

@pandas_udf("int")
def number_of(parts: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for part in parts:
        if (part == b"nine").any():
            raise ValueError("nine\\udcff")
        yield part.map(int)
"""
    (folder / "poison_functions.py").write_text(text, encoding="utf-8")
    calls = JOB.replace("CAST(CAST(value AS STRING) AS INT)", "number_of(value)")
    run(folder, spark, calls + UDF.replace('returns = "int"\n', ""))
    assert numbers(folder) == [0, 1, 3, 7]
    ((_, value, headers),) = letters(folder)
    assert value == b"nine"
    assert (headers["__odradek.errors.message"] or b"").startswith(rb"RuntimeError: ValueError: nine\udcff")


@pytest.mark.laboratory  # both are found as each one alone
def test_a_record_that_ends_the_worker_beside_one_that_raises(folder: Path, spark: SparkSession) -> None:
    text = FUNCTIONS.replace("return None", 'if value == b"3":\n        os._exit(1)\n    return None')
    (folder / "poison_functions.py").write_text(f"import os\n{text}", encoding="utf-8")
    run(folder, spark, JOB.replace("CAST(CAST(value AS STRING) AS INT)", "number_of(value)") + UDF)
    assert numbers(folder) == [0, 1, 7]
    told = {value: headers["__odradek.errors.message"] or b"" for _, value, headers in letters(folder)}
    assert told.keys() == {b"nine", b"3"}
    assert b"nine is no number here" in told[b"nine"]
    assert told[b"3"].startswith(b"a Python worker of Spark ended")


def test_a_record_that_ends_the_worker_is_found_after_three_restarts(folder: Path, spark: SparkSession) -> None:
    text = FUNCTIONS.replace('raise ValueError("nine is no number here")', "os._exit(1)")
    (folder / "poison_functions.py").write_text(f"import os\n{text}", encoding="utf-8")
    restarts: list[str] = []
    job = Job.parse(JOB.replace("CAST(CAST(value AS STRING) AS INT)", "number_of(value)") + UDF, folder)
    Pipeline(job, spark, on_restart=lambda error, _: restarts.append(str(error))).run()
    assert len(restarts) == 3
    assert numbers(folder) == [0, 1, 3, 7]
    ((_, value, headers),) = letters(folder)
    assert value == b"nine"
    assert (headers["__odradek.errors.message"] or b"").startswith(b"a Python worker of Spark ended")


@pytest.mark.laboratory  # three more runs of a job with state
def test_state_does_not_see_a_record_that_ends_the_worker(folder: Path, spark: SparkSession) -> None:
    text = FUNCTIONS.replace('raise ValueError("nine is no number here")', "os._exit(1)")
    (folder / "poison_functions.py").write_text(f"import os\n{text}", encoding="utf-8")
    run(folder, spark, STATEFUL)
    assert counts(folder) == [(0, 1), (1, 1), (3, 1), (7, 1)]
    ((_, value, headers),) = letters(folder)
    assert value == b"nine"
    assert (headers["__odradek.errors.message"] or b"").startswith(b"a Python worker of Spark ended")


@pytest.mark.parametrize(
    ("call", "option", "told"),
    [
        ("number_of(value, 1)", "", r"other arguments than it takes: number_of\(value\): too many positional"),
        ("data.id", 'encoding = "utf-99"', r"source.value.options: .*utf-99"),
    ],
    ids=["arguments", "option"],
)
def test_a_mistake_of_the_job_is_no_records_fault(
    folder: Path, spark: SparkSession, call: str, option: str, told: str
) -> None:
    (folder / "order.ddl").write_text("id INT", encoding="utf-8")
    text = JOB.replace("CAST(CAST(value AS STRING) AS INT)", call) + UDF
    text += f'[source.value]\nformat = "json"\nschema = "order.ddl"\noptions = {{ {option} }}\n'
    with pytest.raises(JobError, match=told):
        run(folder, spark, text)
    assert letters(folder) == []


def counts(folder: Path) -> list[tuple[int, int]]:
    return sorted((row["number"], row["count"]) for row in pq.read_table(folder / "numbers").to_pylist())


@pytest.mark.laboratory  # two minutes: a job with state begins four times
def test_state_does_not_see_what_goes_to_the_dead_letters_once_whatever_crashes(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash_after(method: Callable[..., object]) -> Callable[..., None]:
        def call(*args: object) -> None:
            method(*args)
            if letters(folder):
                raise CrashError

        return call

    # With the letters sent; then with the rows written; then with the end stored, which Spark does not know yet.
    for target, name in ((poison, "write_letters"), (ParquetSink, "write"), (ClaimedStore, "commit")):
        with monkeypatch.context() as patched:
            patched.setattr(target, name, crash_after(getattr(target, name)))
            with pytest.raises(CrashError):
                run(folder, spark, STATEFUL)
    assert run(folder, spark, STATEFUL) == []
    with odradek.open(folder / "source") as logs:
        logs["orders", 0].append([odradek.Record(None, value) for value in (b"nine", b"3")])
    (report,) = run(folder, spark, STATEFUL)
    assert (report.offsets, report.refused) == (2, 1)
    assert counts(folder) == [(0, 1), (1, 1), (3, 1), (3, 2), (7, 1)]
    assert places(folder) == [2, 4]
    assert b"nine is no number here" in (letters(folder)[0][2]["__odradek.errors.message"] or b"")


@pytest.mark.every_case
@pytest.mark.parametrize("text", [JOB, STATEFUL], ids=["plain", "state"])
@pytest.mark.laboratory  # five runs; unit/spark/test_planning.py has the rule
def test_letters_of_a_log_that_was_cut(folder: Path, spark: SparkSession, text: str) -> None:
    """The new record at an offset whose letter is there already is another one; and the loss is told."""
    text = text.replace('subscribe = "orders"', 'subscribe = "orders"\nfailOnDataLoss = "false"')
    shutil.copytree(folder / "source", folder / "cut")

    def append(*values: bytes) -> None:
        with odradek.open(folder / "source") as logs:
            logs["orders", 0].append([odradek.Record(None, value) for value in values])

    append(b"4", b"nine")
    run(folder, spark, text)
    assert places(folder) == [2, 5]
    shutil.rmtree(folder / "source")
    (folder / "cut").rename(folder / "source")
    assert run(folder, spark, text) == []
    append(b"6", b"nine")
    (report,) = run(folder, spark, text)
    assert (report.offsets, report.refused) == (2, 1)
    assert places(folder) == [2, 5, 5]
    with open_store((folder / "offsets.json").as_uri()) as store:
        loss = newest_note(store.load().values()).loss
    assert loss is not None
    assert loss.text == "orders-0: offsets [4, 6)"


@pytest.mark.parametrize("kind", ["json", "avro"])
@pytest.mark.laboratory  # as what goes to the dead letters, by another decoder
def test_state_does_not_see_values_that_cannot_be_decoded(folder: Path, spark: SparkSession, kind: str) -> None:
    (folder / "order.ddl").write_text("id INT", encoding="utf-8")
    (folder / "order.avsc").write_text(
        '{"type": "record", "name": "o", "fields": [{"name": "id", "type": "int"}]}', encoding="utf-8"
    )
    values = {"json": (b'{"id": 1}', b"{", b'{"id": 1}'), "avro": (b"\2", b"", b"\2")}[kind]
    schema = {"json": "order.ddl", "avro": "order.avsc"}[kind]
    with odradek.open(folder / "source") as logs:
        logs.create_topic("typed")
        logs["typed", 0].append([odradek.Record(None, value) for value in values])
    text = STATEFUL.replace(UDF, "").replace('"orders"', '"typed"').replace("number_of(value)", "data.id")
    text = text.replace('"dead-letter"', '"skip"').replace('[dead_letters]\ntopic = "failed"\npath = "dead"\n', "")
    text += f'[source.value]\nformat = "{kind}"\nschema = "{schema}"\noptions = {{ mode = "FAILFAST" }}\n'
    (report,) = run(folder, spark, text)
    assert report.refused == 1
    assert counts(folder) == [(1, 2)]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "number_of(value)",
            "CAST(CAST(value AS STRING) AS INT)",
            r"offset 2 of orders-0 .*CAST_INVALID.* a decoder or",
        ),
        ("SELECT number,", "SELECT number_of(CAST(count(*) AS STRING) || 'x') AS number,", r"invalid literal for int"),
    ],
    ids=["sql", "of several records"],
)
def test_nothing_else_is_left_out_of_a_state(folder: Path, spark: SparkSession, old: str, new: str, told: str) -> None:
    text = STATEFUL if "CAST(CAST" in new else STATEFUL.replace("number_of(value)", "topic")
    with pytest.raises(JobError, match=told):
        run(folder, spark, text.replace(old, new).replace("GROUP BY number", "GROUP BY ALL"))
    assert letters(folder) == []


@pytest.mark.parametrize("target", ["folder", "broker"])
@pytest.mark.laboratory  # a kind of what each_goes_to_the_dead_letters_once judges
def test_what_fails_only_since_a_crash_has_a_letter_too(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """The letters of a batch are sent, and then the job's file is changed so that a record before those fails."""
    with ExitStack() as stack:
        text = JOB
        if target == "broker":
            broker = stack.enter_context(odradek.testing.Broker())
            broker.create_topic("failed")
            text = text.replace('path = "dead"', f'kafka.bootstrap.servers = "{broker.bootstrap_servers}"')
        write = ParquetSink.write

        def crash_after_the_letters(sink: ParquetSink, batch: Batch) -> None:
            if batch.excluded:
                raise CrashError
            write(sink, batch)

        monkeypatch.setattr(ParquetSink, "write", crash_after_the_letters)
        other = text.replace("FROM records", "FROM records WHERE assert_true(value != '1') IS NULL")
        for each in (text, other, other):
            with pytest.raises(CrashError):
                run(folder, spark, each)
        monkeypatch.undo()
        run(folder, spark, other)
        if target == "broker":
            sent = [(record.key, record.value) for record in broker.logs["failed", 0].read(isolation="read_committed")]
        else:
            sent = [(key, value) for key, value, _ in letters(folder)]
    assert sent == [(b"k", b"nine"), (b"k", b"1")]
    assert numbers(folder) == [0, 3, 7]
