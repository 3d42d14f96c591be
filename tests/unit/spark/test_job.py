from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import JobError, TimestampWarning
from odradek.spark.pipeline.functions import Transform
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec, TopicSinkSpec

EXAMPLES = Path(__file__).parents[3] / "examples"

WHOLE = """
name = "words"
[source]
path = "data"
subscribe = "texts"
isolation.level = "read_committed"
includeHeaders = true
[offsets]
store = "file:state/offsets.json"
reset = 1600000000000
[trigger]
interval = "5s"
max_offsets_per_batch = 1000
[spark]
master = "local[2]"
conf = { "spark.sql.shuffle.partitions" = 2 }
[[transform]]
view = "words"
sql = "SELECT 1"
[[sink]]
type = "parquet"
view = "words"
path = "out"
partition_by = ["date"]
[[sink]]
type = "console"
view = "words"
"""


def written(path: Path, text: str) -> Path:
    file = path / "job.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_reads_a_whole_job(tmp_path: Path) -> None:
    assert Job.read(written(tmp_path, WHOLE)) == Job(
        name="words",
        source={
            "path": str(tmp_path / "data"),
            "subscribe": "texts",
            "isolation.level": "read_committed",
            "includeHeaders": "true",
        },
        offset_store=(tmp_path / "state" / "offsets.json").as_uri(),
        reset=1_600_000_000_000,
        trigger_interval_ms=5000,
        max_offsets_per_batch=1000,
        spark_master="local[2]",
        spark_conf={"spark.sql.shuffle.partitions": "2"},
        transforms=(Transform("words", "SELECT 1"),),
        sinks=(
            ParquetSinkSpec(tmp_path / "out", "words", partition_by=("date",)),
            ConsoleSinkSpec("SELECT * FROM words"),
        ),
    )


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_reads_the_examples(example: Path) -> None:
    assert all(job.sinks for job in Job.read_all(example))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("replaced", "by", "said"),
    [
        ("reset = 1600000000000", 'reset = "largest"', "offsets.reset: .* not 'largest'; today it is latest"),
        ("reset = 1600000000000", 'reset = "smallest"', "offsets.reset: .* not 'smallest'; today it is earliest"),
        ("reset =", "auto.offset.reset =", "offsets.auto: unknown key; today it is .*offsets.reset"),
        (
            "interval =",
            '"auto.commit.interval.ms" =',
            "trigger.auto.commit.interval.ms: .*; today it is trigger.interval",
        ),
        (
            "[trigger]",
            '"zookeeper.connect" = "a:1"\n[trigger]',
            r"unknown key; today it is offsets\.store .*zookeeper://",
        ),
        (
            "includeHeaders =",
            "auto.offset.reset =",
            r"source\.auto\.offset\.reset: unknown option .*; today it is startingOff",
        ),
        ("1000", "-5", "trigger.max_offsets_per_batch: at least 1, not -5"),
        ('path = "out"', 'path = "out"\non_held = "replay"', "error or skip, not 'replay'"),
        ("1000", '"many"', "trigger.max_offsets_per_batch: expected a whole number"),
        ('view = "words"\nsql', 'view = "RECORDS"\nsql', "transform.0..view: 'RECORDS' is not a new name of a view"),
        ('path = "data"', r'path = "da\u0000ta"', "source.path: the path has a character that no file's name has"),
        ("state/offsets", r"state/\u0000offsets", "offsets.store: the path has a character"),
        ("1000", "9" * 5000, "a number has too many digits"),
        ("reset = 1600000000000", "reset = true", "offsets.reset: earliest, latest, none or a time in ms, not True"),
        ("reset = 1600000000000", "reset = 99999999999999999999", "offsets.reset: a time in ms must be between"),
        ('["date"]', '[["date"]]', "sink.0..partition_by: names of columns, each once"),
        ('["date"]', '["date", "date"]', "sink.0..partition_by: names of columns, each once"),
        ('subscribe = "texts"', 'subscribe = ["texts"]', "source.subscribe: expected a text, not ..texts"),
        ('partitions" = 2', 'partitions" = [2]', "spark.conf.spark.sql.shuffle.partitions: expected a text"),
        ('path = "out"', 'path = "data"', "is, or lies in, the log directory that the source reads"),
        ('path = "out"', r'path = "o\u0000ut"', r"sink\[0\].path: the path has a character"),
    ],
)
def test_names_the_key_that_is_wrong(tmp_path: Path, replaced: str, by: str, said: str) -> None:
    assert replaced in WHOLE
    with pytest.raises(JobError, match=said):
        Job.read(written(tmp_path, WHOLE.replace(replaced, by, 1)))


def test_sinks_that_would_take_each_others_records_for_their_own_are_refused(tmp_path: Path) -> None:
    source, store = {"path": "data", "subscribe": "texts"}, "file:///offsets.json"
    topic = TopicSinkSpec("copy", {"bootstrap.servers": "localhost:9092"})
    with pytest.raises(JobError, match="needs a name of its own"):
        Job(source, store, (topic,))
    with pytest.raises(JobError, match="two sinks forward under the transactional id 'words-copy'"):
        Job(source, store, (topic, topic), name="words")
    for wrong, message in (
        (replace(topic, on_invalid="drop"), "on_invalid: error, skip or dead-letter, not 'drop'"),
        (replace(topic, on_invalid="dead-letter"), "dead_letter_topic: a topic for on_invalid"),
        (replace(topic, dead_letter_topic="bad"), "dead_letter_topic: a topic for on_invalid"),
        (replace(topic, on_invalid="dead-letter", dead_letter_topic="copy"), "the letters need a topic of their own"),
        (replace(topic, topic="a b"), "sink.0..topic: a topic's name consists of"),
        (
            replace(topic, topic=None, topic_column="to", position_topic="a/b"),
            "position_topic: a topic's name consists",
        ),
    ):
        with pytest.raises(JobError, match=message):
            Job(source, store, (wrong,), name="words")
    letters = replace(topic, topic="letters", transactional_id="words-dead-letters")
    given: dict[str, Any] = {"on_invalid": "dead-letter", "dead_letters": letters}
    with pytest.raises(JobError, match="two sinks forward under the transactional id 'words-dead-letters'"):
        Job(source, store, (replace(topic, transactional_id="words-dead-letters"),), name="words", **given)
    with pytest.raises(JobError, match="name: a name of characters that can be printed"):
        Job(source, store, (topic,), name="wo\0rds")
    other = replace(topic, transactional_id="words-copy-2")
    assert Job(source, store, (topic, other), name="words").transactional_id(other) == "words-copy-2"
    parquet = ParquetSinkSpec(tmp_path / "out", "records")
    for path in (tmp_path / "out", tmp_path / "out" / "inner", tmp_path):
        with pytest.raises(JobError, match="two sinks cannot write to one folder"):
            Job(source, store, (parquet, replace(parquet, path=path)))


def test_a_sink_that_would_forward_its_own_records_is_refused(tmp_path: Path) -> None:
    store, there = "file:///offsets.json", "kafka-2:9092,kafka-1:9092"
    broker = {"kafka.bootstrap.servers": "kafka-1:9092, kafka-3:9092", "subscribe": "a,b"}
    folder = {"path": f"file:{tmp_path}/data/../data", "subscribePattern": "[ab]"}
    letters: dict[str, Any] = {"on_invalid": "dead-letter", "dead_letter_topic": "a"}
    for source, target in (
        (broker, TopicSinkSpec("c", {"bootstrap.servers": there})),
        (folder, TopicSinkSpec("c", {}, path=tmp_path / "data")),
    ):
        for wrong, said in (
            (
                replace(target, topic="b"),
                r"sink\[0\].topic: the source reads the topic b: each record would be .* again",
            ),
            (replace(target, **letters), r"sink\[0\].dead_letter_topic: the source reads the topic a: "),
            (replace(target, topic=None), r"sink\[0\].topic_column: the topic of each record is the one that"),
        ):
            with pytest.raises(JobError, match=said):
                Job(source, store, (wrong,), name="j")
        elsewhere = replace(target, kafka={"bootstrap.servers": "kafka-4:9092"} if target.path is None else {})
        elsewhere = replace(elsewhere, path=target.path and tmp_path / "other")
        for right in (target, replace(target, topic=None, topic_column="target"), replace(elsewhere, topic="b")):
            Job(source, store, (right,), name="j")
    assigned = {**broker, "assign": '{"a": [0]}'}
    del assigned["subscribe"]
    Job(assigned, store, (TopicSinkSpec("a", {"bootstrap.servers": there}, partition_column="p"),), name="j")
    with pytest.raises(JobError, match="the source reads the topic a"):
        Job(assigned, store, (TopicSinkSpec("a", {"bootstrap.servers": there}),), name="j")


def test_no_job_writes_to_a_topic_of_coordinators() -> None:
    internal = "__transaction_state"
    sink, letters = TopicSinkSpec("t", {}), TopicSinkSpec(internal, {})
    puts_aside: dict[str, Any] = {"on_invalid": "dead-letter"}
    told = f"{internal} is internal, and only coordinators write to it"
    for key, sinks, options in (
        ("sink[0].topic", (replace(sink, topic=internal),), {}),
        ("sink[0].dead_letter_topic", (replace(sink, dead_letter_topic=internal, **puts_aside),), {}),
        ("dead_letters.topic", (sink,), {"dead_letters": letters, **puts_aside}),
    ):
        with pytest.raises(JobError) as error:
            Job({"path": "data", "subscribe": "a"}, "file:///offsets.json", sinks, name="j", **options)
        assert (error.value.reason, error.value.key) == (told, key)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("scheme", ["", "file:", "file://", "FILE:"])
@pytest.mark.parametrize("option", ["path", "Path"])
def test_what_lies_in_the_source_is_refused_however_the_source_is_named(
    tmp_path: Path, scheme: str, option: str
) -> None:
    job = f"""
name = "j"
source = {{ {option} = "{scheme}{tmp_path}/data", subscribe = "texts" }}
offsets = {{ store = "file:offsets.json" }}
"""
    parquet, topic = '[[sink]]\ntype = "parquet"\npath', '[[sink]]\ntype = "topic"\ntopic = "texts"\npath'
    view = '[[transform]]\nview = "v"\nsql = "SELECT 1"\n[[sink]]\ntype = "console"\n[state]\npath'
    lies = "is, or lies in, the log directory that the source reads"
    for sink, inside, said in ((parquet, "/out", lies), (view, "/state", lies), (topic, "", "reads the topic texts")):
        for path in (f"data{inside}", f"{tmp_path}/data{inside}"):
            with pytest.raises(JobError, match=said):
                Job.read(written(tmp_path, f'{job}{sink} = "{path}"'))
        assert Job.read(written(tmp_path, f'{job}{sink} = "beside"')).source_options().path == f"{tmp_path}/data"
    for same in ("file:", "file://"):
        with pytest.raises(JobError, match="reads the topic texts"):
            Job.read(written(tmp_path, f'{job}{topic} = "{same}{tmp_path}/data"'))


def test_a_reset_in_seconds_is_told(tmp_path: Path) -> None:
    with pytest.warns(TimestampWarning, match="if these are seconds"):
        assert Job.read(written(tmp_path, WHOLE.replace("1600000000000", "1767225600"))).reset == 1767225600


@pytest.mark.parametrize(
    ("text", "interval_ms"), [("7ms", 7), ("7 s", 7_000), ("7m", 420_000), ("7min", 420_000), ("2h", 7_200_000)]
)
def test_an_interval_has_the_units_of_other_options(tmp_path: Path, text: str, interval_ms: int) -> None:
    path = written(tmp_path, WHOLE.replace('"5s"', f'"{text}"'))
    assert Job.read(path).trigger_interval_ms == interval_ms


def test_a_mark_before_the_text_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(WHOLE.lstrip(), encoding="utf-8-sig")
    assert Job.read(file).name == "words"
