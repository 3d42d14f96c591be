"""Sessions of fetches (KIP-227): a client says once what it wants, and gets what is new."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.target import Target, Topic, batch, expect, expect_error


def _begin(target: Target, topic: Topic, *, version: int = 12, offset: int = 0) -> Any:
    fields = target.fetch_fields(topic, offset)
    answer = target.call("Fetch", version, **fields, session_id=0, session_epoch=0)
    expect_error("error", answer.error_code, "NONE")
    expect("there is a session", answer.session_id > 0, True)
    return answer


def _next(target: Target, session_id: int, epoch: int, *, version: int = 12, **fields: Any) -> Any:
    return target.call("Fetch", version, session_id=session_id, session_epoch=epoch, **fields)


def a_full_fetch_begins_one(target: Target) -> None:
    """A Fetch with epoch 0 begins a session, and has all partitions in its answer."""
    topic = target.topic()
    answer = _begin(target, topic)
    expect("partitions", [one.partition_index for one in answer.responses[0].partitions], [0])


def without_news_there_is_nothing(target: Target) -> None:
    """A partition without news is not in the answer."""
    session = _begin(target, target.topic()).session_id
    answer = _next(target, session, 1)
    expect_error("error", answer.error_code, "NONE")
    expect("partitions and session", (answer.responses, answer.session_id), ((), session))


def records_are_news(target: Target) -> None:
    """A partition with records is in the answer."""
    topic = target.topic()
    session = _begin(target, topic).session_id
    target.produced(topic, batch(b"a"))
    answer = _next(target, session, 1)
    expect("there are records", bool(answer.responses[0].partitions[0].records), True)


def a_high_watermark_is_news(target: Target) -> None:
    """A high watermark that has moved is sent once, even if no records come."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    session = _begin(target, topic, offset=1).session_id
    target.produced(topic, batch(b"b"))
    moved = target.fetch_fields(topic, 2)
    answer = _next(target, session, 1, **moved)
    expect("high watermark", answer.responses[0].partitions[0].high_watermark, 2)
    expect("told once", _next(target, session, 2).responses, ())


def a_log_start_offset_is_news(target: Target) -> None:
    """A log start offset that has moved is sent."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    session = _begin(target, topic, offset=1).session_id
    target.delete_records(topic, 1)
    answer = _next(target, session, 1)
    expect("log start offset", answer.responses[0].partitions[0].log_start_offset, 1)


def a_partition_may_be_added(target: Target) -> None:
    """A partition that is named in a later request belongs to the session from then on."""
    first, second = target.topic(), target.topic()
    session = _begin(target, first).session_id
    answer = _next(target, session, 1, **target.fetch_fields(second, 0))
    expect("topics", [one.topic for one in answer.responses], [second.name])
    target.produced(second, batch(b"a"))
    expect("topics later", [one.topic for one in _next(target, session, 2).responses], [second.name])


def a_partition_may_be_forgotten(target: Target) -> None:
    """A partition that is forgotten does not come any more."""
    topic = target.topic()
    session = _begin(target, topic).session_id
    forgotten = [{"topic": topic.name, "topic_id": topic.id, "partitions": [0]}]
    _next(target, session, 1, forgotten_topics_data=forgotten)
    target.produced(topic, batch(b"a"))
    # A session of no partitions is over.
    answer = _next(target, session, 2)
    expect("partitions", answer.responses, ())


def a_wrong_epoch(target: Target) -> None:
    """A request that is not the next one is INVALID_FETCH_SESSION_EPOCH."""
    session = _begin(target, target.topic()).session_id
    expect_error("error", _next(target, session, 7).error_code, "INVALID_FETCH_SESSION_EPOCH")


def an_unknown_session(target: Target) -> None:
    """A session that does not exist is FETCH_SESSION_ID_NOT_FOUND."""
    expect_error("error", _next(target, 123_456, 1).error_code, "FETCH_SESSION_ID_NOT_FOUND")


def a_session_that_was_ended(target: Target) -> None:
    """Epoch -1 ends a session, and the answer has none."""
    topic = target.topic()
    session = _begin(target, topic).session_id
    last = _next(target, session, -1, **target.fetch_fields(topic, 0))
    expect("session", last.session_id, 0)
    expect_error("error", _next(target, session, 1).error_code, "FETCH_SESSION_ID_NOT_FOUND")


def names_and_ids_do_not_mix(target: Target) -> None:
    """A session that was started with names does not continue with ids: FETCH_SESSION_TOPIC_ID_ERROR."""
    session = _begin(target, target.topic()).session_id
    answer = _next(target, session, 1, version=13)
    expect_error("error", answer.error_code, "FETCH_SESSION_TOPIC_ID_ERROR")


def an_error_is_told_each_time(target: Target) -> None:
    """A partition with an error is in each answer."""
    topic = target.topic()
    answer = target.call("Fetch", 12, **target.fetch_fields(topic, 9), session_id=0, session_epoch=0)
    for epoch in (1, 2):
        answer = _next(target, answer.session_id, epoch)
        expect_error("error", answer.responses[0].partitions[0].error_code, "OFFSET_OUT_OF_RANGE")


def without_a_session_there_is_no_id(target: Target) -> None:
    """A Fetch with epoch -1 has no session."""
    fields = target.fetch_fields(target.topic(), 0)
    expect("session", target.call("Fetch", 12, **fields, session_id=0, session_epoch=-1).session_id, 0)


def with_ids(target: Target) -> None:
    """From v13 on, a session knows its partitions by the ids of their topics."""
    topic = target.topic()
    session = _begin(target, topic, version=13).session_id
    target.produced(topic, batch(b"a"))
    answer = _next(target, session, 1, version=13)
    expect("topics", [one.topic_id for one in answer.responses], [topic.id])
