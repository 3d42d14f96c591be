"""`odradek pipeline`: checks, runs and watches Spark pipelines, from topics through SQL to sinks, exactly once."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from odradek.cli.app import ExitCode, describe, exit_code, fail, report
from odradek.cli.listing import show
from odradek.cli.options import FILE, FORMAT, Name, Number
from odradek.cli.partition_places import Place, one_bound
from odradek.cli.progress import progress
from odradek.errors import FormatError, JobError, OffsetStoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.spark.pipeline import BatchReport, Pipeline
    from odradek.spark.pipeline.job import Job, JobFile

FOLLOW_INTERVAL_MS = 1000
_JAVA_TRACE = "spark.sql.pyspark.jvmStacktrace.enabled"
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What stops a job after its batch, and at once if another one comes."""
_MOST_NAME = 200
"""Of the name of a file, which has at most 255 bytes."""
_JOB = click.option("--job", "name", type=Name(), help="Only this one of the jobs of FILE.")


class _OutputName(Name):
    """A name that folders, topics and groups can end in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        if not re.fullmatch("[A-Za-z0-9_]+", str(value)):
            self.fail(f"{value!r} must have only letters, digits and _", param, ctx)
        return super().convert(value, param, ctx)


@click.group()
def command() -> None:
    """Check, run and watch Spark pipelines over topics.

    Example: odradek pipeline check examples/wordcount.toml
    """


@command.command()
@click.argument("file", type=FILE)
@click.option("--spark", is_flag=True, help="Let Spark analyse the queries, too: this starts it, and takes seconds.")
@FORMAT
def check(file: Path, spark: bool, form: str) -> int:
    """Check the jobs that FILE describes, in a second or two, without starting Spark.

    The check covers keys, the offset store, topics, SQL, views and columns; it asks the store and brokers with a short
    timeout. Spark's own parser reads the SQL. With --spark, a local Spark also analyses the queries, over no rows, if
    nothing else is wrong: functions, types, aggregates. It imports the job's Python functions, and calls those that
    make views. Findings go to stdout, one line each; the exit code is 1 if there are any.

    Example: odradek pipeline check examples/wordcount.toml
    """
    from odradek.spark.pipeline.check import check_job

    try:
        findings = check_job(file, partial(_local_session, file) if spark else None)
    except FormatError as error:
        # A file that is not text is an input error, not a finding.
        fail(describe(error), ExitCode.INPUT_OUTPUT)
    for finding in findings:
        names = ("line", "job", "key", "reason")
        fields = {"file": str(finding.path), **{name: getattr(finding, name) for name in names}}
        show(form, fields, str(finding))
    if form == "text" and not findings:
        report(f"{file}: nothing wrong was found")
    return ExitCode.FINDINGS if findings else ExitCode.CLEAN


def _local_session(file: Path) -> SparkSession:
    """Start a local Spark with the settings of a file, whose jobs share it."""
    from odradek.spark.pipeline.job import JobFile
    from odradek.spark.pipeline.session import open_session

    report("starting Spark, which takes seconds ...")
    job = JobFile.read(file).jobs[0]
    conf = {name: value for name, value in job.spark_conf.items() if name != "spark.master"}
    return open_session(replace(job, spark_master="local[1]", spark_conf=conf))


@command.command()
@click.argument("file", type=FILE)
@click.option("--follow", type=Number(1), help="Continue for N seconds after what is there now.")
@click.option("--from", "starts", type=Place(), multiple=True, help="Backfill: from here on.")
@click.option("--until", "ends", type=Place(), multiple=True, help="... to below here, or to the job's position.")
@click.option("--into", type=_OutputName(), help="... into a separate output, whose names end in NAME.")
@click.option("--assume-unheld", is_flag=True, help="... into sinks that cannot say what they hold: none of the range.")
@_JOB
@click.option("--debug", is_flag=True, help="Print Spark's own trace of an error, too.")
@FORMAT
def run(
    file: Path,
    follow: int | None,
    starts: tuple[Any, ...],
    ends: tuple[Any, ...],
    into: str | None,
    assume_unheld: bool,
    name: str | None,
    debug: bool,
    form: str,
) -> int:
    """Run the jobs that FILE describes.

    Without a trigger interval in FILE a job ends when it has read what is there now; with --follow it continues with
    new records. Several jobs run one after another; if one has an interval, or with --follow, all at the same time.
    One that fails does not end the others. Ctrl-C and SIGTERM finish the current batch; a second one does not wait for
    it.

    With --from a job writes a range of its past into its sinks, beside the running job: what they hold is not written
    again, and the job's position stays. A place is an offset (1200), one of a partition (orders-0=1200, many times), a
    time (2026-11-01T12:00) or earliest. A run that was interrupted is continued by the same command.

    Example: odradek pipeline run examples/wordcount.toml --follow 60
    """
    if not starts and (ends or into is not None or assume_unheld):
        raise click.UsageError("--until, --into and --assume-unheld are for a backfill: give --from, too")
    if starts:
        if follow is not None:
            raise click.UsageError("a backfill ends, and --follow does not: leave out one of them")
        return _backfill(file, name, starts, ends, into, assume_unheld, debug=debug, form=form)
    found = _read(file, name)
    jobs = list(found.jobs)
    names = [job.name for job in jobs]
    if follow is not None:
        jobs = [replace(job, trigger_interval_ms=job.trigger_interval_ms or FOLLOW_INTERVAL_MS) for job in jobs]

    def located(name: str, error: JobError) -> JobError:
        return found.located(names.index(name), error) if error.key is not None or len(jobs) > 1 else error

    return _run(file, jobs, located, follow_s=follow, debug=debug, form=form)


def _backfill(
    file: Path,
    name: str | None,
    starts: tuple[Any, ...],
    ends: tuple[Any, ...],
    into: str | None,
    assume_unheld: bool,
    *,
    debug: bool,
    form: str,
) -> int:
    """Claim the ranges of a backfill, and write them."""
    found = _read(file, name)
    if len(found.jobs) > 1:
        raise click.UsageError(f"{file}: choose the job to backfill by --job")
    from odradek.spark.pipeline.backfill import Backfill, BackfillPipeline, claim_backfill

    asked = Backfill(one_bound("--from", starts), one_bound("--until", ends) if ends else None, into, assume_unheld)

    def located(_: str, error: JobError) -> JobError:
        return found.located(0, error) if error.key is not None else error

    try:
        with progress("backfill"):
            claimed = claim_backfill(found.jobs[0], asked)
    except JobError as error:
        raise located("", error) from error
    if claimed.claim is None:
        report(f"{file}: there is nothing to write before the job's position: the job itself writes what is after it")
        return ExitCode.CLEAN
    pipeline = partial(BackfillPipeline, claim=claimed.claim)
    return _run(file, [claimed.job], located, debug=debug, form=form, pipeline=pipeline)


@command.command(short_help="Send the dead letters of jobs back to their topics.")
@click.argument("file", type=FILE)
@click.option("--store", metavar="STORE", help="Where the position in the letters is kept; by default beside FILE.")
@click.option("--letters-of", "former", metavar="NAME", help="The name that the job had when the letters were sent.")
@click.option("--skip-invalid", is_flag=True, help="Pass over letters whose topic or partition is not there any more.")
@_JOB
@click.option("--debug", is_flag=True, help="Print Spark's own trace of an error, too.")
@FORMAT
def replay_dead_letters(
    file: Path, store: str | None, former: str | None, skip_invalid: bool, name: str | None, debug: bool, form: str
) -> int:
    """Send the dead letters of the jobs that FILE describes back to the topics and partitions of their records.

    Each goes back with its key, value, timestamp and headers, so the job reads it again, as do others that read the
    topic. It goes once: a second run sends only newer letters, and a run that was killed is continued. The letters stay
    where they are, and a table shows how many are of other jobs. If the job was renamed, --letters-of names those of
    its former name. STORE is an offset store, such as redis://HOST:6379/0?group=NAME; with several jobs choose one by
    --job.

    Example: odradek pipeline replay-dead-letters examples/wordcount.toml
    """
    from odradek.spark.pipeline.letters import replay_job

    jobs = [job for job in _read(file, name).jobs if job.dead_letters is not None]
    if not jobs or ((store or former) is not None and len(jobs) > 1):
        raise click.UsageError(f"{file}: " + ("choose one of the jobs by --job" if jobs else "no job has dead_letters"))
    if former is not None:
        jobs = [replace(jobs[0], name=former)]

    def located(name: str, error: JobError) -> JobError:
        return JobError(f"{file}: dead letters of the job {name}: {error.reason}")

    on_invalid = "skip" if skip_invalid else "error"
    replays = [replay_job(job, store or _replay_store(file, job), on_invalid=on_invalid) for job in jobs]
    return _run(file, replays, located, debug=debug, form=form)


def _replay_store(file: Path, job: Job) -> str:
    """Return where the position in a job's letters is kept: one that expires would let them be sent again."""
    name = quote(job.name, safe="")
    if len(name) > _MOST_NAME:
        name = f"{name[:_MOST_NAME]}-{sha256(name.encode()).hexdigest()[:16]}"
    return (file.resolve().parent / f"{name}.replayed.json").as_uri()


def _run(
    file: Path,
    chosen: Sequence[Job],
    located: Callable[[str, JobError], JobError],
    *,
    follow_s: int | None = None,
    debug: bool,
    form: str,
    pipeline: Callable[..., Pipeline] | None = None,
) -> int:
    """Run jobs, and print what they do; `located` adds to an error of a job where it is."""
    from odradek.cli.pipeline_report import RunReport

    trace = {_JAVA_TRACE: "true"} if debug else {}
    jobs = {job.name: replace(job, spark_conf={**trace, **job.spark_conf}) for job in chosen}
    told = RunReport(list(jobs), jsonl=form == "jsonl")
    for each in told.jobs.values():
        each.step("loading Spark ...")
    failures: list[Exception] = []
    ended: list[str] = []
    with told:
        from odradek.spark.pipeline import Pipeline
        from odradek.spark.pipeline.job_runs import JobRuns, SharedSpark
        from odradek.spark.pipeline.session import silence_error_log

        silence_error_log()
        spark = SharedSpark(next(iter(jobs.values())), file.stem).session if len(jobs) > 1 else None
        pipelines = {
            job.name: (pipeline or Pipeline)(
                job,
                spark,
                on_step=told.jobs[job.name].step,
                console=told.sink_console,
                on_restart=told.jobs[job.name].restart,
            )
            for job in jobs.values()
        }
        runs = JobRuns(pipelines)

        heard = [one for one in _STOPS if signal.getsignal(one) is not signal.SIG_IGN]

        def stop(number: int, frame: FrameType | None) -> None:
            runs.stop()
            # A second one ends the process, also one of another kind: Ctrl-C after a supervisor's SIGTERM.
            for each in heard:
                signal.signal(each, signal.SIG_DFL)
            # Not by `print`: the signal may have interrupted one, whose text would then be printed twice.
            os.write(2, f"{signal.Signals(number).name}: stopping after this batch\n".encode())

        for number in heard:
            signal.signal(number, stop)

        def done(name: str, batch: BatchReport) -> None:
            told.jobs[name].batch(batch)

        def end(name: str, failure: Exception | None) -> None:
            if failure is None:
                ended.append(name)
                told.jobs[name].step("done")
                return
            if debug:
                told.jobs[name].trace(failure)
            text = f"{file}: job {name}: {describe(failure)}"
            if isinstance(failure, JobError) and (told_of := located(name, failure)) is not failure:
                failure, text = told_of, describe(told_of)
            failures.append(failure)
            told.jobs[name].failed(text)
            if len(jobs) > 1:
                report(text)

        runs.run(done, end, follow_s=follow_s)
    if failures and len(jobs) == 1:
        raise failures[0]
    for job in jobs.values():
        if job.name in ended:
            told.jobs[job.name].end(job, pipelines[job.name].positions)
    return exit_code(failures[0]) if failures else ExitCode.CLEAN


def _read(file: Path, name: str | None) -> JobFile:
    """Read the jobs of a file, or one of them."""
    import py4j  # noqa: F401 - if it is missing, its extra brings pyarrow too

    from odradek.spark.pipeline.job import JobFile

    found = JobFile.read(file)
    if name is None:
        return found
    try:
        return found.picked(name)
    except LookupError as error:
        raise click.UsageError(f"{file}: {error}") from error


@command.command()
@click.argument("file", type=FILE)
@_JOB
@FORMAT
def status(file: Path, name: str | None, form: str) -> int:
    """Show how far the jobs that FILE describes are, whether they run or not: positions, lag, last batch, last error.

    The offset stores and the sources are asked; no Spark is started. The exit code is 1 if the last run of a job ended
    with an error, if its source does not answer, or if its next batch cannot be read.

    Example: odradek pipeline status examples/wordcount.toml
    """
    jobs = _read(file, name).jobs
    from odradek.cli.pipeline_report import show_status
    from odradek.spark.pipeline.status import job_status

    codes: list[ExitCode] = []
    for number, job in enumerate(jobs):
        try:
            with progress("status"):
                found = job_status(job)
        except OffsetStoreError as error:
            if len(jobs) == 1:
                raise
            report(f"job {job.name}: {describe(error)}")
            codes.append(exit_code(error))
            continue
        if number and form == "text":
            click.echo()
        show_status(found, jsonl=form == "jsonl")
        if not found.is_well:
            codes.append(ExitCode.FINDINGS)
    return codes[0] if codes else ExitCode.CLEAN


@command.command(short_help="Begin with a topic that was made anew.")
@click.argument("file", type=FILE)
@click.argument("topic", type=Name())
@click.option("--store", metavar="STORE", help="For a topic of dead letters: that of replay-dead-letters.")
@_JOB
@FORMAT
def start_over(file: Path, topic: str, store: str | None, name: str | None, form: str) -> None:
    """Let the jobs that FILE describes begin with a TOPIC that was deleted and created again, while they do not run.

    In the offset store and in the sinks, the positions of its partitions become their start. What the sinks hold of the
    topic of before stays. If TOPIC has the dead letters of a job, replay-dead-letters begins with it.

    Example: odradek pipeline start-over examples/wordcount.toml texts
    """
    from odradek.spark.pipeline.letters import replay_job
    from odradek.spark.pipeline.start_over import start_over as begin

    jobs = _read(file, name).jobs
    asking = [job for job in jobs if job.source_options().wants(topic)]
    senders = [job for job in jobs if job.dead_letters is not None and job.dead_letters.topic == topic]
    if store is not None and len(senders) != 1:
        told = "choose one of the jobs by --job" if senders else f"{topic} has dead letters of no job"
        raise click.UsageError(f"{file}: --store: {told}")
    asking += [replay_job(job, store or _replay_store(file, job)) for job in senders]
    if not asking:
        raise JobError(f"{file}: there is no topic {topic} that a job asks for")
    is_begun = False
    for job in asking:
        # None where a run that was interrupted has begun with it already.
        positions = begin(job, topic)
        is_begun |= positions is not None
        for partition, place in sorted((positions or {}).items()):
            fields = {"job": job.name, "topic": topic, "partition": partition.partition, "offset": place.offset}
            show(form, fields, f"{job.name}: {partition} begins at offset {place.offset}")
    if not is_begun:
        raise JobError(f"{topic} was not made anew: it is the topic that the job reads", "source")


@command.command(short_help="Merge the small Parquet files of jobs.")
@click.argument("file", type=FILE)
@click.option("--target-mb", type=Number(1), default=128, show_default=True, help="How large files become.")
@_JOB
@FORMAT
def compact(file: Path, target_mb: int, name: str | None, form: str) -> None:
    """Merge the small Parquet files of the jobs that FILE describes, while they do not run.

    Example: odradek pipeline compact examples/wordcount.toml --target-mb 256
    """
    jobs = _read(file, name).jobs
    from odradek.spark.pipeline.merging import compact as merge
    from odradek.spark.pipeline.sink_specs import ParquetSinkSpec

    for sink in (sink for job in jobs for sink in job.sinks):
        if isinstance(sink, ParquetSinkSpec):
            merged, made = merge(sink.path, target_mb << 20)
            fields = {"path": str(sink.path), "merged": merged, "made": made}
            show(form, fields, f"{sink.path}: {merged} files merged into {made}")
