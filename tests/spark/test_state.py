"""Jobs with state: counts of windows and over the life of a job, joins with static tables, and crashes anywhere."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import odradek
from chaos.job import Job as JobProcess
from odradek.cli.app import main
from odradek.errors import SinkError
from odradek.offsets.file import FileOffsetStore
from odradek.offsets.store import Position
from odradek.spark.pipeline import BatchReport, Job, JobError, Pipeline
from odradek.spark.pipeline.claimed_store import ClaimedStore
from odradek.spark.pipeline.session import silence_error_log
from odradek.spark.pipeline.state_folder import StateFolder
from odradek.storage.names import TopicPartition
from peers.files import create_log
from peers.process import PATIENCE

MINUTE_MS = 60_000
START_MS = 1_790_000_400_000  # a whole number of ten minutes

HEAD = """
name = "counts"
source = { path = "data", subscribe = "words" }
offsets = { store = "file:offsets.json" }
"""
WINDOWS = """
[state]
path = "state"
watermark = "10 minutes"

[[transform]]
view = "counts"
sql = '''
SELECT window(timestamp, '10 minutes').start AS start, CAST(value AS STRING) AS word, count(*) AS count
FROM records GROUP BY window(timestamp, '10 minutes'), value
'''

[[sink]]
type = "parquet"
view = "counts"
path = "counts"
"""
TOTALS = """
[state]
path = "state"
output_mode = "{mode}"

[[transform]]
view = "totals"
sql = "SELECT CAST(value AS STRING) AS word, count(*) AS count FROM records GROUP BY value"

[[sink]]
type = "parquet"
view = "totals"
path = "totals"
name = "all_totals"
merge = "{merge}"
"""


class CrashError(BaseException):
    """What no job expects."""


def append(folder: Path, minutes: Iterable[int]) -> None:
    """Append a word for each minute, to two partitions."""
    with odradek.open(folder / "data") as logs:
        if "words" not in logs.topics():
            logs.create_topic("words", partitions=2)
        for minute in minutes:
            record = odradek.Record(value=b"word %d" % (minute % 3), timestamp=START_MS + minute * MINUTE_MS)
            logs["words", minute % 2].append([record])


def expected(minutes: Iterable[int]) -> Counter[tuple[int, str]]:
    return Counter((minute // 10, f"word {minute % 3}") for minute in minutes)


def windows(folder: Path) -> Counter[tuple[int, str]]:
    """Return the counts in the folder of a sink; a window that is there twice is an error."""
    found: Counter[tuple[int, str]] = Counter()
    for row in pyarrow.dataset.dataset(folder / "counts").to_table().to_pylist():
        key = ((int(row["start"].timestamp() * 1000) - START_MS) // (10 * MINUTE_MS), row["word"])
        assert key not in found
        found[key] = row["count"]
    return found


def job(folder: Path, text: str) -> Job:
    (folder / "job.toml").write_text(HEAD + text, encoding="utf-8")
    return Job.read(folder / "job.toml")


@pytest.mark.laboratory
def test_windows_over_several_runs_are_those_of_one(spark: SparkSession, tmp_path: Path) -> None:
    work = job(tmp_path, WINDOWS)
    append(tmp_path, range(25))
    reports: list[BatchReport] = []
    assert Pipeline(work, spark).run(reports.append) == 1
    assert [(report.offsets, report.lag) for report in reports] == [(25, 0)]
    # The watermark is at minute 14, so the first window is over, by a batch that reads nothing.
    assert windows(tmp_path) == expected(range(10))
    assert Pipeline(work, spark).run() == 0
    append(tmp_path, [*range(25, 60), 0])
    assert Pipeline(work, spark).run() == 1
    append(tmp_path, [100])
    assert Pipeline(work, spark).run() == 1
    # The word of minute 0 came too late.
    assert windows(tmp_path) == expected(range(60))
    with FileOffsetStore(tmp_path / "offsets.json") as store:
        assert {name.partition: place.offset for name, place in store.load().items()} == {0: 32, 1: 30}


def totals(folder: Path) -> dict[str, int]:
    rows = pyarrow.dataset.dataset(folder / "totals").to_table().to_pylist()
    found = {row["word"]: row["count"] for row in rows}
    assert len(found) == len(rows)
    return found


def counted(minutes: Iterable[int]) -> Counter[str]:
    return Counter(f"word {minute % 3}" for minute in minutes)


LATEST = "SELECT word, max(count) AS count FROM all_totals GROUP BY word"
LEDGER = """
[[sink]]
type = "python"
view = "{view}"
function = "{book}:store"
positions = "{book}:positions"
"""
STATE_LEDGER = """
import json
from pathlib import Path

BOOK = Path(__file__).with_name("ledger.json")

def read():
    return json.loads(BOOK.read_text()) if BOOK.exists() else {"rows": [], "positions": []}

def store(rows, batch):
    held = read()
    names = rows.columns
    held["rows"] += [[str(row[name]) for name in names] for row in rows.collect()]
    ends = {tuple(place): end for *place, end in held["positions"]}
    ends.update({name: end for name, start, end in batch.ranges})
    held["positions"] = [[*name, end] for name, end in ends.items()]
    new = BOOK.with_suffix(".new")
    new.write_text(json.dumps(held))
    new.replace(BOOK)

def positions():
    return {(topic, partition): end for topic, partition, end in read()["positions"]}
"""


LEDGERS = itertools.count()
KILLS = 4


def book(folder: Path) -> str:
    """Write the module of a ledger, and return its name: Python keeps modules by their names."""
    name = f"state_ledger_{next(LEDGERS)}"
    (folder / f"{name}.py").write_text(STATE_LEDGER, encoding="utf-8")
    return name


def ledger(folder: Path) -> Counter[tuple[str, ...]]:
    return Counter(tuple(row) for row in json.loads((folder / "ledger.json").read_text())["rows"])


CRASHES = [
    "25 offsets ...",  # before the state is computed
    "counts ...",  # before the first sink
    "25 offsets, python",  # between the sinks
    "25 offsets, storing",  # before the store
    "25 offsets, stored",  # before Spark's own commit
    "over, python",  # in a batch that reads nothing
    "over, storing",
    "over, stored",
]


@pytest.mark.parametrize(
    "steps",
    [["25 offsets, python", "over, stored"], pytest.param(CRASHES, marks=pytest.mark.laboratory)],
    ids=["two", "all"],
)
def test_a_crash_loses_nothing_and_does_nothing_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[str]
) -> None:
    work = job(tmp_path, WINDOWS + LEDGER.format(view="counts", book=book(tmp_path)))
    append(tmp_path, range(25))
    seen: list[str] = []
    commit = ClaimedStore.commit

    def crash(step: str) -> None:
        seen.append(step)
        if steps[0] in step:
            raise CrashError

    def commit_and_crash(store: ClaimedStore, positions: Mapping[TopicPartition, Position]) -> None:
        commit(store, positions)
        if seen and "storing" in seen[-1]:
            crash(seen[-1].replace("storing", "stored"))

    monkeypatch.setattr(ClaimedStore, "commit", commit_and_crash)
    while steps:
        with pytest.raises(CrashError):
            Pipeline(work, spark, on_step=crash).run()
        steps = steps[1:]
        seen.clear()
    append(tmp_path, [25, 100])
    assert Pipeline(work, spark).run() == 1
    assert windows(tmp_path) == expected(range(26))
    assert set(ledger(tmp_path).values()) == {1}
    assert sum(int(count) for *_, count in ledger(tmp_path)) == 26


@pytest.mark.parametrize(
    ("mode", "merge"),
    [("update", LATEST), pytest.param("complete", "SELECT * FROM totals", marks=pytest.mark.laboratory)],
)
def test_totals_over_the_life_of_the_job(spark: SparkSession, tmp_path: Path, mode: str, merge: str) -> None:
    def crash(step: str) -> None:
        if step.endswith("storing its end ..."):
            raise CrashError

    work = job(tmp_path, TOTALS.format(mode=mode, merge=merge))
    append(tmp_path, range(10))
    assert Pipeline(work, spark).run() == 1
    assert totals(tmp_path) == counted(range(10))
    append(tmp_path, [10, 11, 13, 16])
    with pytest.raises(CrashError):
        Pipeline(work, spark, on_step=crash).run()
    assert Pipeline(work, spark).run() == 1
    assert totals(tmp_path) == counted([*range(12), 13, 16])


@pytest.mark.laboratory  # Spark's own join
def test_a_join_with_a_static_table_a_transform_after_the_state_and_stop(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.createDataFrame([("word 0", 5), ("word 1", 7)], "word string, price int").write.parquet(
        str(tmp_path / "prices")
    )
    (tmp_path / "state_prices.py").write_text(
        "from pathlib import Path\n"
        "PRICES = str(Path(__file__).with_name('prices'))\n"
        "def once(records): return records.dropDuplicatesWithinWatermark(['value'])\n"
        "def prices(records): return records.sparkSession.read.parquet(PRICES)\n",
        encoding="utf-8",
    )
    text = """
trigger = { interval = "10ms", max_offsets_per_batch = 4 }
[state]
path = "state"
view = "priced"
partitions = 1
watermark = { column = "timestamp", delay = "1 hour" }

[[transform]]
view = "once"
python = "state_prices:once"

[[transform]]
view = "prices"
python = "state_prices:prices"

[[transform]]
view = "priced"
sql = "SELECT word, price, offset FROM once JOIN prices ON word = CAST(value AS STRING)"

[[transform]]
view = "dear"
sql = "SELECT word, 100 * price AS cents FROM priced WHERE price > 5"

[[sink]]
type = "parquet"
view = "priced"
path = "priced"
name = "all"

[[sink]]
type = "python"
view = "dear"
function = "{book}:store"

[[sink]]
type = "console"
sql = "SELECT count(*) AS priced_so_far FROM all"
"""
    work = job(tmp_path, text.replace("{book}", book(tmp_path)))
    append(tmp_path, range(10))
    pipeline = Pipeline(work, spark)
    numbers: list[int] = []

    def stop(batch: BatchReport) -> None:
        assert batch.offsets <= 4
        numbers.append(batch.number)
        if batch.lag == 0:
            pipeline.stop()

    assert pipeline.run(stop) == 3
    assert numbers == [1, 2, 3]
    assert [part.name for part in (tmp_path / "state" / "state" / "0").iterdir() if part.name.isdecimal()] == ["0"]
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    rows = pyarrow.dataset.dataset(tmp_path / "priced").to_table().to_pylist()
    assert sorted((row["word"], row["price"]) for row in rows) == [("word 0", 5), ("word 1", 7)]
    assert ledger(tmp_path) == Counter({("word 1", "700"): 1})
    assert "priced_so_far" in capsys.readouterr().out
    # Spark has all three batches as done: the stop was after the last one.
    state = StateFolder(tmp_path / "state")
    assert state.last_done == 2
    state.close()
    assert Pipeline(work, spark).run(follow_s=0.01) == 0


@pytest.mark.laboratory
def test_what_belongs_together_and_what_another_uses(spark: SparkSession, tmp_path: Path) -> None:
    work = job(tmp_path, TOTALS.format(mode="update", merge=LATEST))
    append(tmp_path, range(10))
    assert Pipeline(work, spark).run() == 1
    with FileOffsetStore(tmp_path / "offsets.json") as store:
        stored = store.load()
        store.commit({TopicPartition("words", 1): Position(2)}, expected=stored)
        told = r"after offset 5 of words-1, and the offset store has offset 2: .*Set the store .*or remove the folder"
        with pytest.raises(JobError, match=told):
            Pipeline(work).run()
        # As the error says: the store is set to where the state is.
        address = f"file:{tmp_path}/offsets.json"
        ended = CliRunner().invoke(main, ["offsets", "copy", str(tmp_path / "state"), address, "--overwrite"])
        assert ended.exit_code == 0, ended.output
        assert Pipeline(work).run() == 0
        # The sink has the rows up to 5, of another state.
        store.commit({TopicPartition("words", 1): Position(2)}, expected=store.load())
        shutil.move(tmp_path / "state", tmp_path / "old")
        with pytest.raises(SinkError, match=r"holds words-1 up to offset 5, and the state is at 2: .* cannot be cut"):
            Pipeline(work, spark).run()
        store.commit(dict(stored), expected=store.load())
    shutil.rmtree(tmp_path / "state")
    # An empty state at the store's positions.
    append(tmp_path, range(3))
    assert Pipeline(work, spark).run() == 1
    assert totals(tmp_path) == counted(range(10))
    folder = StateFolder(tmp_path / "state")
    with pytest.raises(JobError, match="another pipeline uses this state"):
        Pipeline(work).run()
    folder.close()


@pytest.mark.laboratory
def test_what_spark_refuses_is_one_line(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    silence_error_log()
    append(tmp_path, range(2))
    with pytest.raises(JobError, match="watermark") as caught:
        Pipeline(job(tmp_path, WINDOWS.replace('watermark = "10 minutes"', "")), spark).run()
    assert caught.value.key == "state"
    assert "\n" not in str(caught.value)
    failing = TOTALS.format(mode="update", merge=LATEST).replace("count(*)", "sum(1 / (length(value) - 6))")
    with pytest.raises(JobError, match=r"DIVIDE_BY_ZERO") as caught:
        Pipeline(job(tmp_path, failing.replace('"state"', '"state2"')), spark).run()
    assert "\n" not in str(caught.value)
    assert "Exception" not in capfd.readouterr().err


def joined(query: str, state: str) -> str:
    return WINDOWS.replace('"state"', f'"{state}"').replace(WINDOWS.split("'''")[1], query)


def test_a_join_of_the_records_with_themselves_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would read them twice: while the log grows the two end elsewhere, and neither end is that of the batch."""
    append(tmp_path, range(4))
    query = "SELECT a.value FROM records a JOIN records b ON a.value = b.value AND a.timestamp < b.timestamp"
    with pytest.raises(JobError, match=r"state\.view: the view counts joins the stream of records with itself"):
        Pipeline(job(tmp_path, joined(query, "state")), spark).run()
    assert StateFolder(tmp_path / "state").is_new


@pytest.mark.laboratory
def test_a_union_of_parts_of_the_records_reads_them_once(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path, range(4))
    query = (
        "SELECT timestamp AS start, 'one' AS word, offset AS count FROM records WHERE partition = 0 "
        "UNION ALL SELECT timestamp, 'two', offset FROM records WHERE partition = 1"
    )
    assert Pipeline(job(tmp_path, joined(query, "state")), spark).run() == 1
    append(tmp_path, range(4, 6))
    assert Pipeline(job(tmp_path, joined(query, "state")), spark).run() == 1
    rows = pyarrow.dataset.dataset(tmp_path / "counts").to_table().to_pylist()
    assert sorted((row["word"], row["count"]) for row in rows) == [
        (word, n) for word in ("one", "two") for n in range(3)
    ]


@pytest.mark.laboratory
def test_a_topic_that_goes_and_one_that_comes(spark: SparkSession, tmp_path: Path) -> None:
    work = job(tmp_path, TOTALS.format(mode="update", merge=LATEST))
    work = replace(work, source={"path": work.source["path"], "subscribePattern": "words.*", "failOnDataLoss": "false"})
    append(tmp_path, range(10))
    create_log(tmp_path / "data", "words-2", [b"word 0"])
    assert Pipeline(work, spark).run() == 1
    with odradek.open(tmp_path / "data") as logs:
        logs.delete_topic("words-2")
    append(tmp_path, range(10, 12))
    assert Pipeline(work, spark).run() == 1
    assert Pipeline(work, spark).run() == 0
    create_log(tmp_path / "data", "words-3", [b"word 1"])
    append(tmp_path, range(12, 14))
    assert Pipeline(work, spark).run() == 1
    assert totals(tmp_path) == counted([*range(14), 0, 1])


def job_whose_log_was_cut(folder: Path, spark: SparkSession) -> Job:
    """Run a job over the minutes 0 to 9, and cut the logs after minute 3."""
    work = job(folder, TOTALS.format(mode="update", merge=LATEST))
    work = replace(work, source={**work.source, "failOnDataLoss": "false"})
    append(folder, range(4))
    shutil.copytree(folder / "data", folder / "cut")
    append(folder, range(4, 10))
    assert Pipeline(work, spark).run() == 1
    shutil.rmtree(folder / "data")
    (folder / "cut").rename(folder / "data")
    return work


@pytest.mark.laboratory
def test_a_log_that_was_cut_goes_on_below_what_the_sink_has_of_it(spark: SparkSession, tmp_path: Path) -> None:
    work = job_whose_log_was_cut(tmp_path, spark)
    # Partition 1 has grown beyond the 5 records that were read of it, and partition 0 has 2 left.
    append(tmp_path, range(11, 22, 2))
    assert Pipeline(work, spark).run() == 1
    append(tmp_path, [20, 22])
    assert Pipeline(work, spark).run() == 1
    assert totals(tmp_path) == counted([*range(10), 17, 19, 21, 20, 22])


@pytest.mark.laboratory  # unit/spark/test_planning.py has the rule
def test_a_run_after_a_cut_goes_on_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    """Also if there is nothing to read then: until the log has grown past the position, all would be passed over."""
    work = job_whose_log_was_cut(tmp_path, spark)
    assert Pipeline(work, spark).run() == 0
    append(tmp_path, range(4, 14))
    assert Pipeline(work, spark).run() == 1
    assert totals(tmp_path) == counted([*range(10), *range(4, 14)])


@pytest.mark.laboratory
def test_a_sink_without_its_positions_after_a_crash(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has the batch, Spark does not, and the sink's files say nothing of it: it had no rows."""
    work = job(tmp_path, WINDOWS)
    append(tmp_path, range(25))
    assert Pipeline(work, spark).run() == 1
    append(tmp_path, [25])
    commit = ClaimedStore.commit

    def crash(store: ClaimedStore, positions: Mapping[TopicPartition, Position]) -> None:
        commit(store, positions)
        raise CrashError

    with monkeypatch.context() as patched:
        patched.setattr(ClaimedStore, "commit", crash)
        with pytest.raises(CrashError):
            Pipeline(work, spark).run()
    shutil.rmtree(tmp_path / "counts" / "_odradek")
    assert Pipeline(work, spark).run() == 0
    append(tmp_path, [100])
    assert Pipeline(work, spark).run() == 1
    assert windows(tmp_path) == expected(range(26))


KILLED = """
import os, random, signal, sys, threading
from odradek.spark.pipeline import Job, Pipeline

chance = random.Random(int(sys.argv[2]))
left = chance.randrange(3, 20)

def step(what):
    global left
    left -= 1
    if left == 0:
        print(what, flush=True)
        threading.Timer(chance.choice([0, 0.1, 1]) * chance.random(), os.kill, (os.getpid(), signal.SIGKILL)).start()

Pipeline(Job.read(sys.argv[1]), on_step=step).run()
"""


@pytest.mark.laboratory
@pytest.mark.parametrize("seed", range(3))
def test_drivers_that_are_killed_lose_nothing_and_do_nothing_twice(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    text = WINDOWS + LEDGER.format(view="counts", book=book(tmp_path))
    text += """
[trigger]
max_offsets_per_batch = 15
[spark]
master = "local[2]"
conf = { "spark.sql.shuffle.partitions" = 2 }
"""
    job(tmp_path, text)
    end, kills = 0, list[str]()

    def run(number: int) -> int:
        command = [sys.executable, "-c", KILLED, str(tmp_path / "job.toml"), str(number)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600 * PATIENCE, check=False)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        if ended.returncode:
            kills.append(ended.stdout.strip())
        return ended.returncode

    for number in range(KILLS):
        more = chance.randrange(1, 40)
        append(tmp_path, range(end, end + more))
        end += more
        run(1000 * seed + number)
    append(tmp_path, [end + 100])
    while run(chance.randrange(1 << 20)):
        pass
    print(seed, kills)
    assert windows(tmp_path) == expected(range(end))
    assert set(ledger(tmp_path).values()) == {1}
    assert sum(int(count) for *_, count in ledger(tmp_path)) == end


@pytest.mark.laboratory
@pytest.mark.parametrize("moment", ["batch 1: 5 offsets", "batch 2: 5 offsets of"])
def test_a_spark_that_is_killed_is_one_line(tmp_path: Path, moment: str) -> None:
    """In a batch, and (mostly) while the driver waits for the next one."""
    text = TOTALS.format(mode="update", merge=LATEST).replace("output_mode", "partitions = 1\noutput_mode")
    job(tmp_path, text + '[trigger]\ninterval = "3s"\nmax_offsets_per_batch = 5\n')
    append(tmp_path, range(20))
    run = JobProcess(tmp_path / "job.toml", tmp_path / "told.txt")
    try:
        run.start()
        assert run.wait_for_text(moment, 300)
        assert run.kill("executor", random.Random(1))
        assert run.finish(300) == 3
        (told,) = run.failures()
        assert told.startswith("Spark has ended while it was at work")
    finally:
        run.clean()


@pytest.mark.laboratory
def test_ctrl_c_finishes_the_batch(tmp_path: Path) -> None:
    """Ctrl-C reaches all processes of the terminal's group: Spark's, and its Python workers."""
    text = TOTALS.format(mode="update", merge=LATEST).replace("output_mode", "partitions = 1\noutput_mode")
    text += '[trigger]\ninterval = "50ms"\nmax_offsets_per_batch = 5\n'
    job(tmp_path, text)
    append(tmp_path, range(500))
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import odradek.__main__ as m; m.run()"
    )
    command = [sys.executable, "-c", code, "pipeline", "run", str(tmp_path / "job.toml")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert "batch 1: 5 offsets" in run.stdout.readline()
        os.killpg(run.pid, signal.SIGINT)
        told = run.stderr.read()
        assert run.wait(120 * PATIENCE) == 0, told
    assert "stopping after this batch" in told
    assert "Traceback" not in told
    assert "Exception" not in told
    state = StateFolder(tmp_path / "state")
    assert state.last_done == state.last_planned or state.last_done + 1 == state.last_planned
    reached = sum(place.offset for place in state.ends(state.last_done).values())
    state.close()
    with FileOffsetStore(tmp_path / "offsets.json") as store:
        assert sum(place.offset for place in store.load().values()) == reached
    assert 5 <= reached < 500
    assert sum(totals(tmp_path).values()) == reached
