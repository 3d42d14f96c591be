"""Dead letters that go back to where their records were read, as a job: from the letters' topic into the source.

    letter    key, value, timestamp, headers + __odradek.errors.topic, partition, offset, message, job
    record    key, value, timestamp, headers                ->  the topic and the partition that the letter names

The position in the letters is kept twice: by the transactions that bring the records back, and in an offset store,
which does not expire. So a crash, or a second run, sends nothing twice.
"""

from __future__ import annotations

from pathlib import Path

from odradek.spark.options import SourceOptions
from odradek.spark.pipeline.forwarding import DEAD_LETTER_HEADER
from odradek.spark.pipeline.functions import Transform
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.sink_specs import ORIGIN_COLUMNS, ConsoleSinkSpec, TopicSinkSpec
from odradek.storage.names import INTERNAL_TOPICS, MAX_TOPIC_NAME_LENGTH

LETTER_HEADERS = (*ORIGIN_COLUMNS, "message", "job")
"""The headers that a dead letter has after those of its record, without their prefix."""
_LETTERS, _VIEW, _TOPIC, _PARTITION = "odradek_letters", "odradek_replayed", "odradek_topic", "odradek_partition"

_MOST_NAME = 100
"""Bytes of another job's name that are shown: a stranger's may have a megabyte."""


def wanted_sql(source: SourceOptions) -> str:
    """Return the SQL that is true where a source asks for a partition.

    Whoever may write letters may not write elsewhere by the rights of the job that sends them back.
    """
    if source.partitions is not None:
        pairs = (f"({_TOPIC} = {_text(name.topic)} AND {_PARTITION} = {name.partition})" for name in source.partitions)
        asked_for = " OR ".join(pairs)
    elif source.pattern is None:
        asked_for = f"{_TOPIC} IN ({', '.join(map(_text, source.topics))})"
    else:
        # No text of any length reaches the pattern, and no pattern takes a topic of coordinators.
        internal = ", ".join(map(_text, sorted(INTERNAL_TOPICS)))
        asked_for = (
            f"length({_TOPIC}) <= {MAX_TOPIC_NAME_LENGTH} AND {_TOPIC} NOT IN ({internal}) "
            f"AND {_TOPIC} RLIKE {_text(source.pattern)}"
        )
    return f"coalesce({asked_for}, false)"


def _text(value: str) -> str:
    """Return a text in SQL; as a binary literal it needs no quotes."""
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def replay_job(job: Job, offset_store: str, *, on_invalid: str = "error") -> Job:
    """Return the job that sends the dead letters of a job back to its source, and shows how many stay where they are.

    Args:
        job: A job with `dead_letters`; in that topic stay letters of other jobs, those that name a topic that its
            source does not ask for, and what is no whole letter.
        offset_store: Where the position in the letters is kept.
        on_invalid: What to do with a letter whose topic or partition there is not any more: `error`, or `skip` it.
    """
    letters, source = job.dead_letters, job.source_options()
    assert letters is not None
    count = len(LETTER_HEADERS)
    # Whatever a stranger has written into the letters' topic: it is null, or false, and no error.
    values = [f"try_element_at(headers, {number - count}).value" for number in range(count)]
    whole = " AND ".join(
        f"try_element_at(headers, {number - count}).key <=> '{DEAD_LETTER_HEADER}{name}'"
        for number, name in enumerate(LETTER_HEADERS)
    )
    letters_sql = f"""
        SELECT *, {whole} AS odradek_is_whole, CASE WHEN odradek_is_whole THEN {values[-1]} END AS odradek_job,
               try_validate_utf8(CAST({values[0]} AS STRING)) AS {_TOPIC},
               try_cast(CAST({values[1]} AS STRING) AS INT) AS {_PARTITION},
               odradek_job <=> CAST({_text(job.name)} AS BINARY) AS odradek_is_own,
               odradek_is_own AND {wanted_sql(source)} AND {_PARTITION} IS NOT NULL AS odradek_has_place
        FROM records
    """  # noqa: S608 - nothing of it is a user's
    sql = f"""
        SELECT topic, partition, offset, key, value, timestamp, slice(headers, 1, size(headers) - {count}) AS headers,
               {_TOPIC}, {_PARTITION}
        FROM {_LETTERS} WHERE odradek_has_place
    """  # noqa: S608 - nothing of it is a user's
    shown = f"""
        SELECT count_if(odradek_has_place) AS `of this job`, count_if(NOT odradek_is_own) AS `of others, which stay`,
               array_join(array_sort(collect_set(make_valid_utf8(CAST(left(odradek_job, {_MOST_NAME}) AS STRING)))
                                     FILTER (WHERE NOT odradek_is_own)), ', ') AS `those jobs`,
               count_if(odradek_is_own AND NOT odradek_has_place) AS `without a place, which stay`
        FROM {_LETTERS}
    """  # noqa: S608 - nothing of it is a user's
    place = {f"kafka.{name}": value for name, value in letters.kafka.items()}
    if letters.path is not None:
        place = {"path": str(letters.path)}
    back = TopicSinkSpec(
        None,
        source.kafka,
        _VIEW,
        transactional_id=f"{job.name}-replayed-letters",
        on_held="skip",
        on_invalid=on_invalid,
        topic_column=_TOPIC,
        partition_column=_PARTITION,
        path=None if source.path is None else Path(source.path.removeprefix("file:")).resolve(),
    )
    return Job(
        source={
            **place,
            "subscribe": str(letters.topic),
            "includeHeaders": "true",
            "isolation.level": "read_committed",
            # What retention has taken of the letters cannot be sent back, and holds up no other.
            "failOnDataLoss": "false",
            # Nor does a timestamp of a stranger that Spark has no room for.
            "farTimestamps": "null",
        },
        offset_store=offset_store,
        sinks=(back, ConsoleSinkSpec(shown, title=f"dead letters in {letters.topic}")),
        name=job.name,
        transforms=(Transform(_LETTERS, letters_sql), Transform(_VIEW, sql)),
        spark_master=job.spark_master,
        spark_conf=job.spark_conf,
        restart=job.restart,
    )
