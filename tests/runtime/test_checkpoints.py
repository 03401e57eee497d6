"""Starts from all kinds of checkpoints, on both logs. Batches run without Spark.

Spark's files are kept as it keeps them: where a batch ends before the batch runs, that it is done
after it was written.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import CheckpointError, ProducerFencedError, StreamsBuilder, StreamsConfig, Topology
from headrace.brokers import TopicPartition, open_log
from headrace.brokers.sessions import Broker
from headrace.clients.reset import execute_reset, forget_application, plan_reset
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.layout import read_layout
from headrace.runtime.checkpoint.markers import commit_sentinel, renew_sentinel
from headrace.spark.batch_log import SPARK_FOLDER, spark_checkpoint
from headrace.spark.runner import Run
from headrace.topology.naming import leader_name, markers_name, transactional_id
from tests.application_home import home_of
from tests.runtime.in_process import InProcessQuery, write_query_id
from tests.unique_names import unique

PARTITIONS = 2


def copying(name: str) -> Topology:
    """Return a topology that writes each record that is not quiet."""
    builder = StreamsBuilder()
    records = builder.stream(f"{name}-in", key=str, value=str)
    records.filter(lambda _key, value: value != "quiet").to(f"{name}-out")
    return builder.build()


class Application:
    """An application and its checkpoint."""

    def __init__(self, folder: Path, servers: str | None) -> None:
        self.name = unique("checkpoints")
        settings: dict[str, Any] = {"embedded_path": folder / "topics.db"}
        if servers is not None:
            settings = {"bootstrap_servers": servers}
        self.config = StreamsConfig(application_id=self.name, state_dir=folder, **settings)
        self._settings = settings
        self.home = home_of(self.config)
        self.checkpoint = self.home.checkpoint
        self.spark = self.checkpoint / SPARK_FOLDER
        self.spark_checkpoint = spark_checkpoint(self.name, self.checkpoint)
        self.log = open_log(self.config)
        for topic in ("in", "out"):
            self.log.create_topic(f"{self.name}-{topic}", partitions=PARTITIONS)
        self.queries = 0

    def batch(
        self,
        value: str = "loud",
        *,
        done: bool = True,
        written: bool = True,
        has_sentinel: bool = True,
    ) -> None:
        """Run a batch of a record for each task, to its end or until the process dies.

        Versions that knew no sentinels left none.
        """
        query = InProcessQuery(
            copying(self.name),
            self.home.state_dir,
            application_id=self.name,
            batch_log=self.spark_checkpoint.batch_log,
            **self._settings,
        )
        write_query_id(self.checkpoint)
        if has_sentinel:
            commit_sentinel(
                self.config, self.log, query.layout, self.spark_checkpoint, leader_epoch=0
            )
        number = self.last_batch() + 1
        if number:
            query.batches, query.position = number, self._end(number - 1)
        topic = f"{self.name}-in"
        self.log.append([(topic, p, 1, b"k", value.encode(), None) for p in range(PARTITIONS)])
        start = query.position
        end = query.planner.next(start)
        self.write(f"offsets/{number}", f"v1\n{{}}\n{json.dumps(end.as_dict())}")
        if not has_sentinel:
            self.forget_sentinel()
        if written:
            query.replay(start, end)
        if written and done:
            self.write(f"commits/{number}", "v1\n{}")
        query.log.close()

    def forget_sentinel(self) -> None:
        """Delete the sentinel, and the markers with it, as Kafka does with offsets that are old."""
        self.log.delete_group(markers_name(self.name))

    def clean_up(self) -> None:
        """Forget everything, as `KafkaStreams.clean_up` does."""
        forget_application(self.log, self.home)

    def use(self, **settings: Any) -> None:
        """Change settings."""
        self._settings |= settings
        self.config = self.config.with_settings(**settings)

    def last_batch(self) -> int:
        return max((int(path.name) for path in (self.spark / "offsets").glob("*")), default=-1)

    def _end(self, batch: int) -> BatchBoundary:
        end = self.spark_checkpoint.batch_log.end_of(batch)
        assert end is not None, "it was planned"
        return end

    def write(self, name: str, text: str) -> None:
        """Write one of Spark's files."""
        path = self.spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def copied(self, name: str = "copy") -> Path:
        """Return a copy of the checkpoint."""
        copy = self.checkpoint.with_name(name)
        shutil.copytree(self.checkpoint, copy)
        return copy

    def restore(self, copy: Path) -> None:
        """Put a copy in the place of the checkpoint."""
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        shutil.copytree(copy, self.checkpoint)

    def starts(self) -> bool:
        """Start the application as its next process would; return whether a query was started."""
        before = self.queries
        run = Run(copying(self.name), self.config)
        run.start()
        run.release()
        return self.queries == before + 1

    def refusal(self) -> str:
        """Return why the application does not start; see that no query was started."""
        with pytest.raises(CheckpointError) as caught:
            self.starts()
        assert self.queries == 0
        return str(caught.value)


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.nightly("faults"))])
def application(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Application]:
    on_kafka = request.param == "kafka"
    made = Application(tmp_path, request.getfixturevalue("kafka").address if on_kafka else None)

    def start_query(*_: object) -> SimpleNamespace:
        made.queries += 1
        return SimpleNamespace(isActive=False, stop=lambda: None)

    session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=PARTITIONS))
    monkeypatch.setattr("headrace.spark.runner.start_query", start_query)
    monkeypatch.setattr("headrace.spark.runner.open_session", lambda *_: session)
    yield made
    made.log.close()


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_an_application_resumes_from_its_checkpoint(application: Application, batches: int) -> None:
    for _ in range(batches):
        application.batch()

    assert application.starts()


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("written", [False, True])
def test_a_process_may_die_between_any_two_files(
    application: Application, *, before: int, written: bool
) -> None:
    for _ in range(before):
        application.batch()

    application.batch(done=False, written=written)

    assert application.starts()


@pytest.mark.parametrize("further", [1, 3])
@pytest.mark.parametrize("done", [False, True])
def test_an_older_copy_is_refused_until_the_newest_one_is_back(
    application: Application, *, further: int, done: bool
) -> None:
    application.batch()
    application.batch(done=done)
    copy = application.copied()
    for _ in range(further):
        application.batch()
    newest = application.copied("newest")

    application.restore(copy)

    assert application.refusal() == (
        f"The checkpoint {str(application.checkpoint)!r} is not the newest one: its last batch is "
        f"1, but the application has written batch {1 + further} of task 0 (group "
        f"'{application.name}-markers'). Restore the newest one, or start again with "
        f"`headrace reset {application.name}`."
    )
    application.restore(newest)
    assert application.starts()


def test_without_markers_an_older_copy_is_refused_by_its_progress(
    application: Application,
) -> None:
    application.use(processing_guarantee="at_least_once")
    application.batch()
    copy = application.copied()
    # The planner commits the offsets of a batch when it plans the next one.
    application.batch()
    application.batch()
    newest = application.copied("newest")

    application.restore(copy)

    assert application.refusal() == (
        f"The checkpoint {str(application.checkpoint)!r} is not the newest one: it has planned "
        f"'{application.name}-in', partition 0, up to 1, but the application has read it up to 2. "
        f"Restore the newest one, or start again with `headrace reset {application.name}`."
    )
    application.restore(newest)
    assert application.starts()


def test_an_older_copy_that_misses_no_written_batch_resumes(
    application: Application,
) -> None:
    application.batch()
    copy = application.copied()
    application.batch("quiet")

    application.restore(copy)

    assert application.starts()


def test_a_copy_with_another_past_is_refused(application: Application) -> None:
    application.batch()
    copy = application.copied()
    application.batch("quiet")
    other = application.copied("other")
    application.restore(copy)
    application.batch()

    application.restore(other)

    assert "from other offsets than it has, the application has written batch 1 of task 0" in (
        application.refusal()
    )


def test_a_deleted_checkpoint_is_refused(application: Application) -> None:
    application.batch()

    shutil.rmtree(application.checkpoint)

    assert re.search("has made progress, but its checkpoint .* is gone", application.refusal())


def test_a_checkpoint_whose_part_of_spark_is_gone_is_refused(application: Application) -> None:
    application.batch()

    shutil.rmtree(application.spark)

    assert re.search("has made progress, but its checkpoint .* is gone", application.refusal())


def test_a_checkpoint_of_another_query_is_refused(application: Application) -> None:
    application.batch()

    application.write("metadata", json.dumps({"id": "another"}))

    assert "it is of query 'another', but query 'query' has written" in application.refusal()


@pytest.mark.parametrize("data", ["", "{}", '{"id":'])
def test_a_checkpoint_without_a_query_id_is_refused(application: Application, data: str) -> None:
    application.batch()

    application.write("metadata", data)

    said = application.refusal()
    assert re.search("The file '.*metadata' of the checkpoint is torn", said)
    assert said.endswith(f"start again with `headrace reset {application.name}`.")


def reset(application: Application) -> None:
    execute_reset(application.log, plan_reset(application.log, application.home))


def test_an_application_that_was_reset_starts_cleanly(application: Application) -> None:
    application.batch()

    reset(application)

    assert application.starts()


def test_a_copy_from_before_a_reset_is_refused(application: Application) -> None:
    application.batch()
    application.batch()
    copy = application.copied()
    reset(application)

    application.restore(copy)

    assert "was reset, but its checkpoint" in application.refusal()


def test_a_copy_from_before_a_reset_is_refused_after_a_new_life_too(
    application: Application,
) -> None:
    application.batch()
    copy = application.copied()
    reset(application)
    application.batch()
    application.batch()

    application.restore(copy)

    assert "was reset or cleaned up since" in application.refusal()


GUARANTEES = pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])


@GUARANTEES
@pytest.mark.parametrize("done", [False, True])
def test_a_copy_from_before_a_clean_up_is_refused(
    application: Application, guarantee: str, *, done: bool
) -> None:
    application.use(processing_guarantee=guarantee)
    application.batch()
    application.batch(done=done)
    copy = application.copied()
    application.clean_up()

    application.restore(copy)

    assert application.refusal() == (
        f"Topic '{application.name}-markers' is not the one that the checkpoint "
        f"{str(application.checkpoint)!r} was made with: the application was reset or cleaned up "
        "since, or the topic was deleted, and with it the batch markers, which show how far "
        "results are written. Restore the checkpoint that belongs to it, or start again with "
        f"`headrace reset {application.name}`."
    )
    reset(application)
    assert application.starts()


def test_a_copy_from_before_a_clean_up_is_refused_after_a_quiet_new_life_too(
    application: Application,
) -> None:
    application.batch()
    copy = application.copied()
    application.clean_up()
    application.batch("quiet")

    application.restore(copy)

    assert "was reset or cleaned up since" in application.refusal()


@GUARANTEES
def test_an_application_that_was_cleaned_up_starts_cleanly(
    application: Application, guarantee: str
) -> None:
    application.use(processing_guarantee=guarantee)
    application.batch()

    application.clean_up()

    assert application.starts()
    assert application.starts()


def test_a_reset_ends_transactions_also_if_the_topic_of_markers_is_gone(
    application: Application,
) -> None:
    application.batch()
    application.log.delete_topic(markers_name(application.name))

    def outlive_a_reset() -> None:
        with application.log.transaction(transactional_id(application.name, 0)) as transaction:
            transaction.append([(f"{application.name}-out", 0, 1, b"k", b"late", None)])
            reset(application)

    with pytest.raises(ProducerFencedError):
        outlive_a_reset()


class Dying:
    """A log of someone who dies after some steps of what is deleted."""

    def __init__(self, log: Broker, steps: int) -> None:
        self._log, self._left = log, steps

    def __getattr__(self, name: str) -> Any:
        if name in ("delete_topic", "delete_group"):
            self._left -= 1
            if self._left < 0:
                raise KeyboardInterrupt
        return getattr(self._log, name)


@pytest.mark.parametrize("steps", range(5))
def test_an_older_copy_is_refused_wherever_a_clean_up_was_interrupted(
    application: Application, steps: int
) -> None:
    application.batch()
    copy = application.copied()
    application.batch()
    log: Any = Dying(application.log, steps)
    with pytest.raises(KeyboardInterrupt):
        forget_application(log, application.home)

    without = application.refusal()
    application.restore(copy)
    with_older = application.refusal()

    assert "has made progress, but its checkpoint" in without
    assert "Restore the" in with_older
    application.clean_up()
    assert application.starts()


def test_a_sentinel_that_is_needed_is_not_recreated(application: Application) -> None:
    application.batch(done=False)
    layout = read_layout(application.name, application.checkpoint)
    assert layout is not None
    application.forget_sentinel()  # after the checkpoint was checked

    commit_sentinel(application.config, application.log, layout, application.spark_checkpoint, 1)
    renew_sentinel(application.name, application.log, application.spark_checkpoint, 1)

    assert application.log.committed_offsets(markers_name(application.name)) == {}


def test_a_process_that_slept_before_its_sentinel_does_not_replace_a_later_one(
    application: Application,
) -> None:
    application.batch(done=False)
    asleep = read_layout(application.name, application.checkpoint)
    assert asleep is not None
    asleep.marker_topic_id = ""  # as it was before the first sentinel
    markers = markers_name(application.name)
    application.log.delete_topic(markers)
    application.log.create_topic(markers, partitions=PARTITIONS)

    commit_sentinel(application.config, application.log, asleep, application.spark_checkpoint, 1)

    assert "or the topic was deleted" in application.refusal()


def test_a_deleted_marker_topic_is_not_recreated(
    application: Application,
) -> None:
    application.batch()
    application.batch(done=False)

    application.log.delete_topic(markers_name(application.name))

    assert "or the topic was deleted" in application.refusal()
    assert markers_name(application.name) not in application.log.list_topics()


@pytest.mark.parametrize("written", [False, True])
def test_a_replay_of_a_batch_without_markers_is_refused(
    application: Application, *, written: bool
) -> None:
    application.batch()
    application.batch(done=False, written=written)

    application.forget_sentinel()

    assert application.refusal() == (
        f"Batch 1 of checkpoint {str(application.checkpoint)!r} is unfinished, and its markers are "
        f"gone: the group '{application.name}-markers' was deleted, or its offsets expired "
        "(`offsets.retention.minutes`). If results of that batch may be there twice, start once "
        "with `processing_guarantee='at_least_once'`, and stop when the batch is done. Otherwise "
        f"start again with `headrace reset {application.name}`."
    )
    application.use(processing_guarantee="at_least_once")
    assert application.starts()


def test_an_application_that_stood_still_until_its_markers_expired_resumes(
    application: Application,
) -> None:
    application.batch()
    application.forget_sentinel()

    assert application.starts()
    (application.spark / "commits" / "0").unlink()
    assert application.starts()


def test_a_sentinel_is_not_renewed_while_the_markers_of_a_batch_are_needed(
    application: Application,
) -> None:
    sentinel = TopicPartition(leader_name(application.name), 0)
    group = markers_name(application.name)
    application.batch(done=False)
    before = application.log.committed_offsets(group, [sentinel])

    application.starts()
    unfinished = application.log.committed_offsets(group, [sentinel])
    application.write("commits/0", "v1\n{}")
    application.starts()

    assert before == unfinished
    assert (
        application.log.committed_offsets(group, [sentinel])[sentinel].offset
        > before[sentinel].offset
    )


def test_a_checkpoint_of_a_version_without_sentinels_gets_one(application: Application) -> None:
    application.batch(has_sentinel=False)
    application.batch(has_sentinel=False, done=False)

    assert application.starts()
    application.queries = 0
    application.forget_sentinel()
    assert "is unfinished, and its markers are gone" in application.refusal()


def test_an_older_copy_is_refused_if_batches_since_ran_at_least_once(
    application: Application,
) -> None:
    application.batch()
    copy = application.copied()
    application.use(processing_guarantee="at_least_once")
    application.batch()
    application.batch()
    newest = application.copied("newest")
    application.use(processing_guarantee="exactly_once_v2")

    application.restore(copy)

    assert "up to 1, but the application has read it up to 2" in application.refusal()
    application.restore(newest)
    assert application.starts()


def test_a_copy_from_before_the_first_batch_is_refused(application: Application) -> None:
    application.use(processing_guarantee="at_least_once")
    application.batch()
    copy = application.copied()
    for folder in ("offsets", "commits"):
        shutil.rmtree(copy / SPARK_FOLDER / folder)
    application.batch()

    application.restore(copy)

    assert "up to 0, but the application has read it up to 1" in application.refusal()


def test_a_first_batch_that_may_begin_elsewhere_is_refused(application: Application) -> None:
    application.batch(done=False)

    (application.checkpoint / "first.json").unlink()

    assert application.refusal() == (
        f"The checkpoint {str(application.checkpoint)!r} has planned batch 0, but its file "
        "'first.json', which holds where that batch begins, is missing. Restore the checkpoint "
        f"from a copy, or start again with `headrace reset {application.name}`."
    )


def test_where_the_first_batch_began_is_not_needed_when_it_is_done(
    application: Application,
) -> None:
    application.batch()

    (application.checkpoint / "first.json").unlink()

    assert application.starts()
