"""A file with several jobs: defaults, names, what no two of them may share, and errors that say which job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

import odradek
from odradek.errors import JobError
from odradek.offsets.store import Position, open_store
from odradek.spark.pipeline import Job
from odradek.spark.pipeline.check import check_job
from odradek.spark.pipeline.job_lines import JobLines
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec, TopicSinkSpec
from odradek.storage.names import TopicPartition
from peers.command import run

JOBS = """\
[source]
path = "data"
includeHeaders = true

[offsets]
store = "file:{name}.json"
reset = "latest"

[spark]
conf = { "spark.sql.shuffle.partitions" = 2 }

[[sink]]
type = "console"

[[job]]
name = "orders"
source.subscribe = "orders"
offsets.reset = "earliest"

[[job.transform]]
view = "paid"
sql = '''
SELECT *
FROM records
'''

[[job.sink]]
type = "parquet"
view = "paid"
path = "paid"

[[job.sink]]
type = "topic"
topic = "copy"
path = "data"

[[job]]
name = "bills"

[job.source]
subscribe = "bills"
includeHeaders = false

[[job]]
name = "more bills"
source = { subscribe = "bills" }
sink = [{ type = "topic", topic = "copy", path = "data" }]
"""


def written(folder: Path, text: str = JOBS) -> Path:
    file = folder / "jobs.toml"
    file.write_text(text, encoding="utf-8")
    return file


def changed(old: str, new: str) -> str:
    assert old in JOBS
    return JOBS.replace(old, new, 1)


def test_tables_outside_of_jobs_are_defaults_key_by_key_and_lists_as_a_whole(tmp_path: Path) -> None:
    orders, bills, more = Job.read_all(written(tmp_path))
    assert (orders.name, bills.name, more.name) == ("orders", "bills", "more bills")
    path = str(tmp_path / "data")
    assert orders.source == {"path": path, "includeHeaders": "true", "subscribe": "orders"}
    assert bills.source == {"path": path, "includeHeaders": "false", "subscribe": "bills"}
    assert (orders.reset, bills.reset) == ("earliest", "latest")
    assert orders.spark_conf == bills.spark_conf == {"spark.sql.shuffle.partitions": "2"}
    assert [job.offset_store for job in (orders, bills, more)] == [
        (tmp_path / f"{name}.json").as_uri() for name in ("orders", "bills", "more bills")
    ]
    assert [type(sink) for sink in orders.sinks] == [ParquetSinkSpec, TopicSinkSpec]
    assert [type(sink) for sink in bills.sinks] == [ConsoleSinkSpec]
    assert [type(sink) for sink in more.sinks] == [TopicSinkSpec]


def test_the_name_in_an_address_is_escaped(tmp_path: Path) -> None:
    store = "redis://localhost:6379/0?group={name}"
    *_, more = Job.read_all(written(tmp_path, changed("file:{name}.json", store)))
    assert more.offset_store == "redis://localhost:6379/0?group=more%20bills"


def test_a_file_without_jobs_is_one(tmp_path: Path) -> None:
    text = '{source} offsets = {{ store = "file:{{name}}.json" }}\nsink = [{{ type = "console" }}]\n'
    file = written(tmp_path, text.format(source='source = { path = "data", subscribe = "orders" }\n'))
    assert Job.read_all(file) == [Job.read(file)]
    assert Job.read(file).offset_store.endswith("%7Bname%7D.json")


def test_one_job_is_read_and_several_are_an_error(tmp_path: Path) -> None:
    one = JOBS[: JOBS.index('[[job]]\nname = "bills"')]
    assert Job.read(written(tmp_path, one)).name == "orders"
    with pytest.raises(
        JobError, match=r"jobs.toml: there are 3 jobs \(orders, bills, more bills\): Job.read_all reads"
    ):
        Job.read(written(tmp_path))


WRONG = [
    ('[[job]]\nname = "bills"', "[[job]]", "line 37: job #2: name: this key is missing"),
    ('name = "bills"', 'nmae = "bills"', "line 38: job #2: nmae: unknown key; did you mean name?"),
    ('name = "bills"', "name = 3", "line 38: job #2: name: expected a text, not 3"),
    (
        'name = "bills"',
        'name = "orders"',
        "line 38: job orders: name: job orders has this name: each job needs its own",
    ),
    ("[source]", 'name = "all"\n[source]', "line 1: name: each [[job]] has a name of its own"),
    (
        'name = "bills"',
        'name = "bills"\nspark.master = "local[1]"',
        "line 39: job[1].spark: the jobs of a file share o",
    ),
    (
        "includeHeaders = false",
        "includeHeader = 3",
        "line 42: job bills: source.includeHeader: unknown option includeh",
    ),
    ("includeHeaders = true", "includeHeader = 1", "line 3: job orders: source.includeHeader: unknown option includeh"),
    ('view = "paid"\npath', 'view = "piad"\npath', "line 29: job orders: sink[0].view: there is no view 'piad'; did"),
    ('path = "paid"', 'pth = "paid"', "line 30: job orders: sink[0].pth: unknown key; did you mean path?"),
    ('topic = "copy"\n', 'topic = "copy"\non_held = "no"\n', "line 35: job orders: sink[1].on_held: error, skip or "),
    (
        'topic = "copy", path',
        'topic = "copy", transactional_id = "orders-copy", path',
        "line 47: job more bills: sink[0].transactional_id: job orders forwards under 'orders-copy': each job need",
    ),
    (
        '[{ type = "topic", topic = "copy", path = "data" }]',
        '[{ type = "parquet", path = "./paid/in" }]',
        "line 47: job more bills: sink[0].path: job orders writes to this folder, or to one around it or in it: ea",
    ),
    (
        "{name}.json",
        "all.json",
        "line 6: job bills: offsets.store: job orders has this offset store, in whose address {name} may stand",
    ),
    (
        "[spark]",
        '[metrics]\nhistory = "day"\n[spark]',
        "line 10: job bills: metrics.history: job orders keeps its history here: each job needs its own",
    ),
]


@pytest.mark.parametrize(("old", "new", "told"), WRONG)
def test_what_is_wrong_is_told_with_its_line_and_its_job(tmp_path: Path, old: str, new: str, told: str) -> None:
    file = written(tmp_path, changed(old, new))
    with pytest.raises(JobError) as caught:
        Job.read_all(file)
    assert str(caught.value).startswith(f"{file}: {told}")


@pytest.mark.parametrize("text", ["job = 3", "job = []", "[job]\nname = 'a'", "job = [1]"])
def test_job_is_an_array_of_tables(tmp_path: Path, text: str) -> None:
    with pytest.raises(JobError, match=r"line 1: job: expected \[\[job\]\]"):
        Job.read_all(written(tmp_path, text))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("redis://h/0?group=g", "rediss://u:p@h:6379/?group=g", True),
        ("redis://h:6379/0?group=g", "redis://h:6379/1?group=g", False),
        ("redis://h:6379/0?group=g", "redis://h:6379/0?group=h", False),
        ("redis://h:6379/0?list=g", "redis://h:6379/0?list=h", False),
        ("redis://h:6379/0?list=g", "redis://h/?list=g", True),
        ("redis://h/0?hash=g&topic=t", "redis://h/0?hash=h&topic=t", False),
        ("redis://h/0?hash=g:{topic}&topic=t", "redis://h/0?hash=g:{topic}&topic=u", True),
        ("zookeeper://h/?node=/a&topic=t", "zookeeper://h?node=/a&topic=t", True),
        ("zookeeper://h/?node=/a&topic=t", "zookeeper://h/?node=/b&topic=t", False),
        ("kafka://a:9092,b:9092/g", "kafka://c:9092,b/g?timeout_ms=3", True),
        ("kafka://a:9092/g", "zookeeper://a:9092/g", False),
        ("zookeeper://a/x/g", "zookeeper://a:2181/g", False),
        ("file:state/a.json", "file:./state/../state/a.json", True),
        ("folder:///data?group=g", "folder:///data/../data?group=g", True),
        ("redis://[h/0?group=g", "redis://[h/0?group=g", False),  # told by whoever opens it
    ],
)
def test_stores_are_compared_by_what_they_keep(tmp_path: Path, one: str, other: str, same: bool) -> None:
    job = '[[job]]\nname = "{}"\noffsets.store = "{}"\n'
    shared = 'source = { path = "data", subscribe = "t" }\nsink = [{ type = "console" }]\n'
    file = written(tmp_path, shared + job.format("a", one) + job.format("b", other))
    if same:
        with pytest.raises(JobError, match=r"job b: offsets\.store: job a has this offset store"):
            Job.read_all(file)
    else:
        assert len(Job.read_all(file)) == 2


def test_two_sinks_have_no_function_for_positions_in_common(tmp_path: Path) -> None:
    sink = '[[{}sink]]\ntype = "python"\nfunction = "ledger:store"\npositions = "ledger:{}"\n'
    shared = 'source = { path = "data", subscribe = "t" }\noffsets = { store = "file:{name}" }\n'
    one = shared + sink.format("", "places")
    assert Job.read(written(tmp_path, one + sink.format("", "others")))
    with pytest.raises(JobError, match="two sinks cannot have one function for their positions: ledger:places"):
        Job.read(written(tmp_path, one + sink.format("", "places")))
    jobs = [f'[[job]]\nname = "{name}"\n{sink.format("job.", "places")}' for name in ("a", "b")]
    with pytest.raises(JobError, match=r"line 14: job b: sink\[0\].positions: job a has this function: each job needs"):
        Job.read_all(written(tmp_path, shared + "".join(jobs)))


def test_the_lines_of_keys() -> None:
    lines = JobLines(JOBS)
    found = [
        lines.line(key, job)
        for job in range(3)
        for key in ("source.path", "source.subscribe", "source.includeHeaders", "sink[0].path", "sink[1].type", "name")
    ]
    assert found == [2, 17, 3, 30, 33, 16, 2, 41, 42, 12, 12, 38, 2, 46, 3, 47, 47, 45]
    assert [lines.text_line("transform[0].sql", 2, job) for job in range(2)] == [24, 37]


def odradek_pipeline(*words: str | Path) -> Result:
    return run("pipeline", *words)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topics([odradek.NewTopic(name) for name in ("orders", "bills", "copy")])
        logs["bills", 0].append([odradek.Record(value=b"1"), odradek.Record(value=b"2")])
    return written(tmp_path)


@pytest.mark.slow
def test_check_covers_all_jobs(file: Path) -> None:
    assert check_job(file) == []
    text = changed("FROM records", "FROM recods").replace('subscribe = "bills"\nincl', 'subscribe = "bill"\nincl')
    text = text.replace('topic = "copy", path', 'topic = "kopy", path').replace('"file:', '"fil:')
    written(file.parent, text)
    store, *others = (str(finding).removeprefix(f"{file}: ") for finding in check_job(file))
    # The addresses of three stores are wrong, at one line.
    assert store.startswith("line 6: job orders: offsets.store: fil:")
    told = [
        "line 24: job orders: transform[0].sql: there is no view recods; did you mean records?",
        "line 41: job bills: source.subscribe: there is no topic bill in ",
        "line 47: job more bills: sink[0].topic: there is no topic kopy in ",
    ]
    assert [line[: len(wanted)] for line, wanted in zip(others[2:], told, strict=True)] == told
    finding = json.loads(odradek_pipeline("check", file, "--format", "jsonl").stdout.splitlines()[-1])
    assert (finding["job"], finding["key"], finding["line"]) == ("more bills", "sink[0].topic", 47)


def test_what_is_wrong_with_a_default_is_told_once(file: Path) -> None:
    written(file.parent, changed('path = "data"', 'path = "dta"') + "nothing = 1\n")
    first, *others = map(str, check_job(file))
    assert first.startswith(f"{file}: line 2: source.path: ")
    assert others == [f"{file}: line 48: job more bills: nothing: unknown key"]


def test_status_covers_all_jobs_or_one(file: Path) -> None:
    with open_store(Job.read_all(file)[1].offset_store) as store:
        store.commit({TopicPartition("bills", 0): Position(1)}, expected=store.load())
    every = odradek_pipeline("status", file)
    assert every.exit_code == 0
    titles = [line for line in every.output.splitlines() if " left, position in " in line]
    assert [title.partition(",")[0] for title in titles] == ["orders: - left", "bills: 1 left", "more bills: - left"]
    one = odradek_pipeline("status", file, "--job", "bills", "--format", "jsonl")
    assert [json.loads(line)["name"] for line in one.output.splitlines()] == ["bills"]
    # A store that does not answer hides no other job.
    (file.parent / "orders.json").write_text("{", encoding="utf-8")
    every = odradek_pipeline("status", file)
    assert every.exit_code == 3
    assert "odradek: job orders: file://" in every.stderr
    assert every.stdout.count(" left, position in ") == 2


@pytest.mark.parametrize("command", ["run", "status", "compact"])
def test_an_unknown_job_is_named(file: Path, command: str) -> None:
    failed = odradek_pipeline(command, file, "--job", "bils")
    assert failed.exit_code == 2
    assert f"{file}: there is no job 'bils'; did you mean bills?" in failed.stderr
