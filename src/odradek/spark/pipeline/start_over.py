"""Lets a job begin with a topic that was made anew under the name of one that it has read."""

from __future__ import annotations

from contextlib import ExitStack

from odradek.errors import JobError
from odradek.offsets.store import Position, is_same_topic, open_store
from odradek.spark.pipeline.driver import open_sink
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.sink_specs import SinkSpec
from odradek.spark.ranges import position_at
from odradek.spark.source_topics import open_topics
from odradek.storage.names import TopicPartition


def start_over(job: Job, topic: str) -> dict[TopicPartition, Position] | None:
    """Set the positions of a topic to its start, in the sinks of a job and in its offset store.

    What the sinks hold of the topic stays: files, and records of other topics. The job must not be running.

    Args:
        job: The job; one with state keeps records of the topic in it, which cannot be taken out.
        topic: The topic, as it is now.

    Returns:
        The positions; None if the topic was not made anew: it is the one that the job reads.

    Raises:
        JobError: The source does not ask for such a topic, or the job has state.
        SinkError: Another driver holds a sink, or what it holds cannot be written again.
        CommitConflictError: Another driver has stored positions meanwhile.
    """
    if job.state is not None:
        told = f"{job.state.path} is the state of {topic} too: remove it, and the positions, to begin with an empty one"
        raise JobError(told, "state.path")
    with ExitStack() as opened:
        specs: dict[str, SinkSpec] = {f"sink[{number}]": spec for number, spec in enumerate(job.sinks)}
        if job.dead_letters is not None:
            specs["dead_letters"] = job.dead_letters
        sinks = []
        for key, spec in specs.items():
            sinks.append(open_sink(spec, key, job))
            opened.callback(sinks[-1].close)
        topics = open_topics(job.source_options())
        opened.callback(topics.close)
        store = open_store(job.offset_store, job.offset_store_options)
        opened.callback(store.close)
        options = job.source_options()
        there = [name for name in topics.partitions(lambda found: found == topic) if options.wants_partition(name)]
        if not there:
            raise JobError(f"there is no topic {topic} that the source asks for", "source")
        places = {name: position_at(held, held.start_offset) for name, held in topics.bounds(there).items()}
        stored = store.load()
        # A partition that is missing now begins at 0 when it comes.
        topic_id = next(place.topic_id for place in places.values())
        of_sinks = {name for sink in sinks for name in sink.positions()}
        gone = [name for name in {*stored, *of_sinks} if name.topic == topic and name not in places]
        anew = {**places, **{name: Position(0, topic_id=topic_id) for name in gone}}
        # Where the store is in the new topic already, as after a kill, or before a sink was added, it stays there.
        kept = {name: at for name, at in stored.items() if name in places and at.topic_id and at.topic_id == topic_id}
        is_done = True
        # The store comes last: until then the job is refused as before, and this can be done again.
        for sink in sinks:
            held = sink.held(anew)
            old = [
                name
                for name, at in held.items()
                if not is_same_topic(at.topic_id, topic_id) or (at.topic_id is None and name not in kept)
            ]
            if old:
                sink.replay({name: kept.get(name, anew[name]) for name in old})
                is_done = False
        left = [name for name in gone if name in stored]
        if is_done and not left and len(kept) == len(places):
            return None
        begun = {name: place for name, place in places.items() if name not in kept}
        stored = store.commit(begun, expected=stored)
        if left:
            store.delete(left, expected=stored)
        return {**places, **kept}
