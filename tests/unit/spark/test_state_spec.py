"""The table `[state]` of a job: what it may say, and what a job with it cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

import odradek
from odradek.errors import JobError
from odradek.spark.pipeline.check import check_job
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.state_spec import StateSpec, Watermark

WHOLE = """
name = "words"
source = { path = "data", subscribe = "texts" }
offsets = { store = "file:offsets.json" }

[state]
path = "state"
view = "counts"
output_mode = "update"
partitions = 3
watermark = { view = "words", column = "at", delay = "10 minutes" }

[[transform]]
view = "words"
sql = "SELECT explode(split(CAST(value AS STRING), ' ')) AS word, timestamp AS at FROM records"

[[transform]]
view = "counts"
sql = "SELECT word, count(*) AS count FROM words GROUP BY word, window(at, '1 hour')"

[[transform]]
view = "many"
sql = "SELECT * FROM counts WHERE count > 1"

[[sink]]
type = "parquet"
view = "many"
path = "many"
name = "so_far"
"""


def test_the_whole_table(tmp_path: Path) -> None:
    job = Job.parse(WHOLE, tmp_path)
    assert job.state == StateSpec(tmp_path / "state", "counts", "update", Watermark("10 minutes", "words", "at"), 3)
    streaming, later = job.stateful_transforms()
    assert [transform.view for transform in streaming] == ["words", "counts"]
    assert [transform.view for transform in later] == ["many"]
    short = WHOLE.replace('view = "counts"\noutput', "output").replace(
        '{ view = "words", column = "at", delay = "10 mi', '"3 mi'
    )
    job = Job.parse(short.replace('minutes" }', 'minutes"').replace('output_mode = "update"\n', ""), tmp_path)
    assert job.state == StateSpec(tmp_path / "state", watermark=Watermark("3 minutes", "records"), partitions=3)
    assert len(job.stateful_transforms()[0]) == 3


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('path = "state"', "", r"state\.path: this key is missing"),
        ('path = "state"', 'path = "hdfs://host/state"', r"state\.path: a folder of this machine's file system"),
        ('path = "state"', 'path = "many/state"', r"sink\[0\]\.path: the sink .*many and the state .* a folder each"),
        (
            'path = "state"',
            'path = "data/state"',
            r"state\.path: .*state is, or lies in, the log directory that the so",
        ),
        ("output_mode", "outputMode", r"state\.outputMode: unknown key; did you mean output_mode"),
        ("partitions = 3", "partitions = 0", r"state\.partitions: at least 1, not 0"),
        ('"update"', "3", r"state\.output_mode: expected a text, not 3"),
        ('view = "counts"\nout', 'view = "records"\nout', r"state\.view: no transform has the view 'records'"),
        ('delay = "10 minutes"', "dely = 1", r"state\.watermark\.dely: unknown key; did you mean delay"),
        ('view = "words", col', 'view = "many", col', r"state\.watermark: there is no view 'many' up to counts"),
        ('{ view = "words", column = "at", delay = "10 minutes" }', "5", r"state\.watermark: a time .*, not 5"),
        (
            'view = "many"\npath',
            'view = "words"\npath',
            r"sink\[0\]\.view: the view words is of the stream, and only counts",
        ),
        ('name = "so_far"', 'on_held = "skip"', r"sink\[0\]\.on_held: .* cannot skip"),
        (
            "[state]",
            'on_invalid = "skip"\n[state]',
            r"on_invalid: .* a udf or the decoder .*, and this job has neither",
        ),
        (
            "sql = \"SELECT explode(split(CAST(value AS STRING), ' ')) AS word, timestamp AS at FROM records\"",
            'python = "own:words"\n[[udf]]\nname = "f"\nfunction = "own:f"',
            r"on_invalid: .*; own:words sees more than one record",
        ),
        ('type = "parquet"', 'type = "topic"\ntopic = "x"', r"sink\[0\]\.type: a topic sink forwards each record by"),
    ],
)
def test_what_cannot_be_meant_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in WHOLE
    text = WHOLE.replace(old, new)
    if "topic sink" in told:
        text = text.replace('name = "so_far"', "")
    if "own:words" in told:
        text = 'on_invalid = "skip"\n' + text
    with pytest.raises(JobError, match=told):
        Job.parse(text, tmp_path)


def test_a_transform_after_the_state_reads_what_is_there_in_each_batch(tmp_path: Path) -> None:
    (tmp_path / "later.py").touch()
    text = WHOLE.replace('sql = "SELECT * FROM counts WHERE count > 1"', 'python = "later:many"')
    with pytest.raises(JobError, match=r"transform\[2\]\.input: the view records is of the stream"):
        Job.parse(text, tmp_path)
    Job.parse(text.replace('later:many"', 'later:many"\ninput = "counts"'), tmp_path)
    with pytest.raises(JobError, match="state: there is no transform"):
        Job.parse(text[: text.index("[[transform]]")] + '[[sink]]\ntype = "console"\n', tmp_path)


@pytest.mark.slow
def test_check_finds_columns_of_the_watermark_and_views_that_are_not_there(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("texts")
    file = tmp_path / "job.toml"

    def found(text: str) -> list[str]:
        file.write_text(text, encoding="utf-8")
        return [str(finding).removeprefix(f"{file}: ") for finding in check_job(file)]

    assert found(WHOLE) == []
    assert found(WHOLE.replace('column = "at"', 'column = "att"')) == [
        "line 11: state.watermark: the view words has no column att; did you mean at?"
    ]
    console = WHOLE + '[[sink]]\ntype = "console"\nsql = "SELECT * FROM VIEWS"\n'
    assert found(console.replace("VIEWS", "so_far, many, counts")) == []
    assert found(console.replace("VIEWS", "words")) == ["line 32: sink[1].sql: there is no view words"]
    (tmp_path / "state").touch()
    assert found(WHOLE) == [f"line 7: state.path: {tmp_path / 'state'}: not a folder"]


def test_no_two_jobs_of_a_file_share_a_state(tmp_path: Path) -> None:
    head, rest = WHOLE.split("[state]")
    head = head.replace('name = "words"\n', "").replace("offsets.json", "{name}.json")
    job = '[[job]]\nname = "{}"\nstate.path = "{}"\nsink = [{{ type = "console", view = "many" }}]\n'
    shared = head + rest[rest.index("[[transform]]") : rest.index("[[sink]]")]
    Job.read_all(written(tmp_path, shared + job.format("a", "one") + job.format("b", "two")))
    with pytest.raises(JobError, match=r"job b: state\.path: job a has this folder, or one around it or in it"):
        Job.read_all(written(tmp_path, shared + job.format("a", "one") + job.format("b", "one/two")))


def written(folder: Path, text: str) -> Path:
    (folder / "jobs.toml").write_text(text, encoding="utf-8")
    return folder / "jobs.toml"
