"""An application on real Spark from start to close, and what it leaves for the next start."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from headrace import (
    CheckpointError,
    KafkaStreams,
    LagInfo,
    ProcessingError,
    State,
    StreamsBuilder,
    StreamsError,
    StreamThreadExceptionResponse,
    Topology,
)
from headrace.brokers import TopicPartition, open_log
from headrace.brokers.sessions import Broker
from headrace.metrics import MetricName
from headrace.spark.session import log_of_java
from tests.application_home import embedded_home
from tests.free_address import free_address
from tests.spark.hosts import Given, ProgramHost, Seen, await_that
from tests.waiting import PATIENTLY

pytestmark = pytest.mark.usefixtures("java")
NIGHTLY = pytest.mark.nightly("faults")


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).group_by_key().count(
        materialized="counts"
    ).to_stream().to("out")
    return builder.build()


def mapping(function: Callable[[str], str]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values(function, value=str, name="map").to("out")
    return builder.build()


class Application:
    """An application on the embedded log, with the topics ``in`` and ``out`` of one partition."""

    def __init__(self, folder: Path, topology: Topology, **settings: Any) -> None:
        self._topology = topology
        self._settings = {
            "application_id": "lifecycle",
            "state_dir": folder,
            "num_stream_threads": 2,
            "statestore_cache_max_bytes": 0,
            **settings,
        }
        self.streams = self.made()
        self.log: Broker = open_log(self.streams.config)
        self.log.create_topic("in")
        self.log.create_topic("out")

    def made(self, **settings: Any) -> KafkaStreams:
        """Return the application as its next start needs it."""
        self.streams = KafkaStreams(self._topology, **{**self._settings, **settings})
        return self.streams

    def append(self, *values: str) -> None:
        self.log.append([("in", 0, 1, b"k", value.encode(), None) for value in values])

    def written(self) -> list[bytes | None]:
        name = TopicPartition("out", 0)
        end = self.log.end_offsets([name])[name]
        return [each.value for some in self.log.read(name, 0, end) for each in some]

    def committed(self) -> int | None:
        """Return how far the group of the application is, as other programs see it."""
        found = self.log.committed_offsets("lifecycle").get(TopicPartition("in", 0))
        return None if found is None else found.offset

    def await_written(self, count: int) -> None:
        await_that(lambda: len(self.written()) >= count, f"{count} results", self.streams)

    def await_read(self, count: int) -> None:
        def has_read() -> bool:
            lag = self.streams.lag().get(TopicPartition("in", 0))
            return lag is not None and lag.current_offset_position == count

        await_that(has_read, f"{count} records to be read", self.streams)


def numbers(written: list[bytes | None]) -> list[int]:
    return [int.from_bytes(each or b"") for each in written]


def test_states_follow_each_other_and_queries_are_answered(tmp_path: Path) -> None:
    application = Application(tmp_path, counting(), application_server=free_address())
    url = f"http://{application.streams.config.application_server}/v1/stores/counts/keys/k"
    streams, heard = application.streams, list[tuple[State, State]]()
    streams.set_state_listener(lambda new, old: heard.append((old, new)))

    with streams:
        await_that(lambda: streams.state() is State.RUNNING, "running", streams)
        application.append("a")
        application.await_written(1)
        await_that(lambda: httpx.get(url).is_success, "an answer to a query", streams)
        assert httpx.get(url).json() == 1
        with pytest.raises(StreamsError, match="is RUNNING, so its state cannot be deleted"):
            streams.clean_up()
        with pytest.raises(StreamsError, match="was started before: it is RUNNING"):
            streams.start()

    assert heard == [
        (State.CREATED, State.REBALANCING),
        (State.REBALANCING, State.RUNNING),
        (State.RUNNING, State.PENDING_SHUTDOWN),
        (State.PENDING_SHUTDOWN, State.NOT_RUNNING),
    ]
    assert streams.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def run_to_its_end(folder: Path) -> Application:
    """Return an application that processed three records, all there were, and ended."""
    application = Application(folder, counting(), trigger="available_now")
    application.append("a", "b", "c")
    application.streams.start()
    assert application.streams.await_termination(PATIENTLY)
    return application


@pytest.fixture(scope="module")
def ended(java: None, tmp_path_factory: pytest.TempPathFactory) -> Application:
    """An application that has ended, for tests that only look at it."""
    return run_to_its_end(tmp_path_factory.mktemp("ended"))


def test_available_now_ends_when_everything_is_processed(ended: Application) -> None:
    assert ended.streams.state() is State.NOT_RUNNING
    assert numbers(ended.written()) == [1, 2, 3]


def test_metrics_count_the_records_read_and_written(ended: Application) -> None:
    metrics = ended.streams.metrics()

    task = (("task-id", "0_0"),)
    assert metrics[MetricName("stream-task-metrics", "process-total", task)] == 3
    out = (("topic", "out"),)
    assert metrics[MetricName("stream-topic-metrics", "records-produced-total", out)] == 3
    assert metrics[MetricName("stream-metrics", "batches-total")] == 1


def test_lag_has_the_current_and_the_end_offset(ended: Application) -> None:
    assert ended.streams.lag() == {TopicPartition("in", 0): LagInfo(3, 3, 0)}


def test_the_group_of_the_application_shows_its_progress(ended: Application) -> None:
    committed = ended.log.committed_offsets("lifecycle")

    assert {name: found.offset for name, found in committed.items()} == {TopicPartition("in", 0): 3}


def test_cleaned_up_it_starts_over(tmp_path: Path) -> None:
    ended = run_to_its_end(tmp_path)
    before = len(ended.written())
    ended.streams.clean_up()

    again = ended.made()
    again.start()

    assert again.await_termination(PATIENTLY)
    assert numbers(ended.written()[before:]) == [1, 2, 3]


def test_an_older_copy_of_the_checkpoint_is_refused_and_the_newest_resumes(tmp_path: Path) -> None:
    application = Application(tmp_path, counting(), trigger="available_now")
    checkpoint = embedded_home(tmp_path, "lifecycle").checkpoint

    def run() -> None:
        application.made().start()
        assert application.streams.await_termination(PATIENTLY)

    for value in ("a", "b"):
        application.append(value)
        run()
        shutil.copytree(checkpoint, tmp_path / value)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "a", checkpoint)
    with pytest.raises(
        CheckpointError, match=r"its last batch is 0, but .* has written batch 1 of"
    ):
        application.made().start()
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "b", checkpoint)
    application.append("c")
    run()

    assert numbers(application.written()) == [1, 2, 3]


def test_a_checkpoint_whose_markers_are_gone_is_refused(tmp_path: Path) -> None:
    application = Application(tmp_path, counting(), trigger="available_now")
    checkpoint = embedded_home(tmp_path, "lifecycle").checkpoint
    application.append("a")
    application.streams.start()
    assert application.streams.await_termination(PATIENTLY)
    shutil.copytree(checkpoint, tmp_path / "copy")
    for path in (checkpoint / "spark" / "commits").iterdir():
        path.unlink()
    application.log.delete_group("lifecycle-markers")

    with pytest.raises(
        CheckpointError, match=r"Batch 0 of .* is unfinished, and its markers are gone"
    ):
        application.made().start()
    application.streams.clean_up()
    shutil.copytree(tmp_path / "copy", checkpoint)
    with pytest.raises(CheckpointError, match="was reset or cleaned up since"):
        application.made().start()


@pytest.mark.parametrize(
    "kept", ["half", *(pytest.param(kept, marks=NIGHTLY) for kept in ("nothing", "no file"))]
)
def test_state_that_a_power_cut_tore_is_an_error_at_once(tmp_path: Path, kept: str) -> None:
    application = Application(tmp_path, counting(), trigger="available_now")
    checkpoint = embedded_home(tmp_path, "lifecycle").checkpoint
    for value in ("a", "b"):
        application.append(value)
        application.made().start()
        assert application.streams.await_termination(PATIENTLY)
    torn = max(checkpoint.rglob("*.changelog"), key=lambda path: path.stat().st_mtime_ns)
    if kept == "no file":
        torn.unlink()
    else:
        torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2 if kept == "half" else 0])

    application.append("c")
    application.made().start()
    with pytest.raises(CheckpointError) as caught:
        application.streams.await_termination(PATIENTLY)

    assert str(caught.value) == (
        f"The state of application 'lifecycle' is damaged: {str(torn)!r} is missing, or not as it "
        f"was written. Restore the newest copy of the checkpoint {str(checkpoint)!r}, or start "
        f"again with `headrace reset lifecycle --embedded-path {tmp_path / 'topics.db'} "
        f"--state-dir {tmp_path}`."
    )
    assert numbers(application.written()) == [1, 2]


def test_paused_it_begins_no_batch(tmp_path: Path) -> None:
    application = Application(tmp_path, counting(), trigger="50ms")
    streams = application.streams

    with streams:
        application.append("a")
        application.await_read(1)
        before = batches(streams)
        streams.pause()
        assert streams.is_paused()
        for value in ("b", "c", "d"):
            time.sleep(0.3)  # enough for a batch each
            application.append(value)
        streams.resume()
        application.await_read(4)

    assert numbers(application.written()) == [1, 2, 3, 4]
    assert batches(streams) - before == 1


def test_paused_before_its_start_it_runs_and_begins_no_batch(tmp_path: Path) -> None:
    application = Application(tmp_path, counting())
    streams = application.streams
    application.append("a")
    streams.pause()

    with streams:
        await_that(lambda: streams.state() is State.RUNNING, "running", streams)
        assert streams.lag() == {TopicPartition("in", 0): LagInfo(0, 1, 1)}
        assert application.written() == []
        streams.resume()
        application.await_written(1)


def test_paused_it_does_not_end_before_it_has_read_what_was_available(tmp_path: Path) -> None:
    application = Application(tmp_path, counting(), trigger="available_now")
    streams = application.streams
    application.append("a")
    streams.pause()

    streams.start()
    await_that(lambda: streams.state() is State.RUNNING, "running", streams)
    ended = streams.await_termination("1s")
    before = application.written()
    streams.resume()

    assert (ended, before) == (False, [])
    assert streams.await_termination(PATIENTLY)
    assert numbers(application.written()) == [1]


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_during_an_interval_progress_is_reported_no_batch_begins_and_close_does_not_wait(
    tmp_path: Path, guarantee: str
) -> None:
    application = Application(
        tmp_path, counting(), trigger=timedelta(days=10_000), processing_guarantee=guarantee
    )
    streams = application.streams
    application.append("a")
    began = time.monotonic()
    streams.start()
    application.await_written(1)

    application.await_read(1)
    during = application.committed()
    seconds = streams.metrics()[MetricName("stream-metrics", "batch-seconds")]
    passed = time.monotonic() - began
    application.append("b")
    time.sleep(2)  # enough for a batch
    lag = streams.lag()
    closed = streams.close(PATIENTLY)

    assert closed
    assert numbers(application.written()) == [1]
    assert during == application.committed() == 1
    assert 0 < seconds < passed
    assert lag == streams.lag() == {TopicPartition("in", 0): LagInfo(1, 2, 1)}


@pytest.mark.parametrize("trigger", ["continuous", "1h"])
def test_closing_commits_the_offsets_of_the_last_batch(tmp_path: Path, trigger: str) -> None:
    application = Application(tmp_path, mapping(slowly(tmp_path)), trigger=trigger)
    streams = application.streams
    application.append("a")
    streams.start()
    await_that((tmp_path / "begun-a").exists, "the batch", streams)

    closed = streams.close(PATIENTLY)

    assert closed
    assert application.written() == [b"A"]
    assert application.committed() == 1
    assert streams.lag()[TopicPartition("in", 0)].current_offset_position == 1


def test_an_application_runs_whose_pattern_matches_no_topic(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("log-.*"), key=str, value=str).to("out")
    application = Application(tmp_path, builder.build())
    streams = application.streams

    with streams:
        await_that(lambda: streams.state() is State.RUNNING, "running", streams)

    assert streams.lag() == {}


@pytest.mark.usefixtures("spark_anew")
def test_an_application_whose_spark_is_stopped_ends_in_our_words(tmp_path: Path) -> None:
    application = Application(tmp_path, counting(), task_timeout=0)
    streams = application.streams
    streams.start()
    await_that(lambda: streams.state() is State.RUNNING, "running", streams)

    session = SparkSession.getActiveSession()
    assert session is not None
    session.stop()

    with pytest.raises(StreamsError, match="Spark") as caught:
        streams.await_termination(PATIENTLY)
    assert "Py4J" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert streams.state() is State.ERROR


def users_of(path: Path) -> set[int]:
    """Return the other processes that have a file open."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if link.readlink() == path:
                found.add(int(link.parts[2]))
    return found - {os.getpid()}


def test_a_planner_that_dies_is_reported_without_spark_and_replaced(
    tmp_path: Path,
) -> None:
    application = Application(tmp_path, counting())
    streams, errors = application.streams, list[StreamsError]()

    def replace(error: StreamsError) -> StreamThreadExceptionResponse:
        errors.append(error)
        return StreamThreadExceptionResponse.REPLACE_THREAD

    streams.set_uncaught_exception_handler(replace)
    with streams:
        await_that(lambda: streams.state() is State.RUNNING, "running", streams)
        (planner,) = users_of(tmp_path / "topics.db")  # there was no batch, so there is no worker
        os.kill(planner, signal.SIGKILL)
        application.append("a")
        application.await_written(1)

    log = log_of_java(embedded_home(tmp_path, "lifecycle").spark_log)
    (error,) = map(str, errors)
    assert error.startswith(
        "Spark ended the query of application 'lifecycle': a Python process died, killed or out of "
        "memory ("
    )
    assert error.endswith(f"). The log is {str(log)!r}.")


def batches(streams: KafkaStreams) -> float:
    return streams.metrics()[MetricName("stream-metrics", "batches-total")]


def slowly(folder: Path) -> Callable[[str], str]:
    """Return a function that says when it begins, and then takes its time."""

    def slow(value: str) -> str:
        (folder / f"begun-{value}").touch()
        time.sleep(2)
        return value.upper()

    return slow


def test_close_lets_the_running_batch_finish(tmp_path: Path) -> None:
    application = Application(tmp_path, mapping(slowly(tmp_path)))
    streams = application.streams
    streams.start()

    application.append("a")
    await_that((tmp_path / "begun-a").exists, "the batch", streams)
    closed = streams.close()

    assert closed
    assert streams.state() is State.NOT_RUNNING
    assert application.written() == [b"A"]


def test_a_batch_that_close_did_not_wait_for_is_done_by_the_next_start(tmp_path: Path) -> None:
    application = Application(tmp_path, mapping(slowly(tmp_path)))
    streams = application.streams
    streams.start()
    application.append("a")
    await_that((tmp_path / "begun-a").exists, "the batch", streams)

    in_time = streams.close("10ms")
    streams.await_termination(PATIENTLY)
    before = application.written()
    again = application.made(trigger="available_now")
    again.start()

    assert again.await_termination(PATIENTLY)
    assert (in_time, before) == (False, [])
    assert application.written() == [b"A"]


def failing_after(mark: Path, fail: Callable[[], None]) -> Callable[[str], str]:
    """Return a function that says when it begins, and fails when a file is gone, till mended."""

    def wait_and_fail(value: str) -> str:
        mark.with_name("begun").touch()
        while mark.exists():
            time.sleep(0.05)
        if not mark.with_name("mended").exists():
            fail()
        return value.upper()

    return wait_and_fail


def closed_in_a_batch_that_fails(
    application: Application, mark: Path
) -> concurrent.futures.Future[bool]:
    """Close an application during a batch that fails then; return what becomes of closing."""
    streams = application.streams
    mark.touch()
    application.append("a")
    streams.start()
    await_that(mark.with_name("begun").exists, "the batch", streams)
    with concurrent.futures.ThreadPoolExecutor(1) as closer:
        closed = closer.submit(streams.close)
        await_that(lambda: streams.state() is State.PENDING_SHUTDOWN, "closing", streams)
        mark.unlink()
    return closed


def test_close_raises_the_error_of_a_batch_that_fails_for_good(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def fail() -> None:
        raise ValueError("not this one")

    application = Application(tmp_path, mapping(failing_after(mark, fail)))

    closed = closed_in_a_batch_that_fails(application, mark)

    with pytest.raises(ProcessingError, match="not this one"):
        closed.result()
    assert application.streams.state() is State.ERROR
    assert application.written() == []


def test_close_returns_false_if_the_next_start_must_replay_a_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = tmp_path / "mark"
    application = Application(tmp_path, mapping(failing_after(mark, lambda: os._exit(1))))

    closed = closed_in_a_batch_that_fails(application, mark)
    before = application.written()
    (tmp_path / "mended").touch()
    again = application.made(trigger="available_now")
    again.start()

    assert again.await_termination(PATIENTLY)
    assert (closed.result(), before) == (False, [])
    assert "Python worker exited unexpectedly" in caplog.text
    assert "Application 'lifecycle' is closed before a retry" in caplog.text
    assert application.written() == [b"A"]


def failing_while(mark: Path) -> Callable[[str], str]:
    """Return a function that fails for as long as a file is there."""

    def fail(value: str) -> str:
        if mark.exists():
            raise ValueError("the mark is there")
        return value.upper()

    return fail


def test_the_exception_handler_can_start_the_query_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    application = Application(tmp_path, mapping(failing_while(mark)))
    streams = application.streams
    states, errors = list[State](), list[StreamsError]()
    streams.set_state_listener(lambda new, _: states.append(new))

    def decide(error: StreamsError) -> StreamThreadExceptionResponse:
        errors.append(error)
        mark.unlink()
        return StreamThreadExceptionResponse.REPLACE_THREAD

    streams.set_uncaught_exception_handler(decide)
    application.append("a", "b")
    with streams:
        application.await_written(2)

    assert application.written() == [b"A", b"B"]
    found = [(type(e).__name__, type(e.__cause__).__name__, str(e.__cause__)) for e in errors]
    assert found == [("ProcessingError", "ValueError", "the mark is there")]
    assert (states[-1], State.REBALANCING in states[1:]) == (State.NOT_RUNNING, True)


@pytest.mark.usefixtures("spark_anew")  # the number of cores belongs to a session
@pytest.mark.parametrize("host", ["embedded", pytest.param("kafka", marks=NIGHTLY)], indirect=True)
def test_a_restart_on_other_cores_keeps_its_state(host: ProgramHost) -> None:
    builder = StreamsBuilder()
    builder.stream("words", key=str, value=str).group_by(
        lambda _, word: word, key=str, name="by-word"
    ).count(materialized="counts").to_stream().to("word-counts")
    host.create_topics("words", "word-counts", partitions=3)

    host.start(builder.build(), statestore_cache_max_bytes=0)
    host.pipe(*(Given("words", b"%d" % n, b"w%d" % (n % 5), 1 + n) for n in range(10)))
    before = host.read("word-counts", 10)
    host.close()
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
    host.start(builder.build(), statestore_cache_max_bytes=0, num_stream_threads=1)
    host.pipe(*(Given("words", b"%d" % n, b"w%d" % (n % 5), 20 + n) for n in range(5)))
    after = host.read("word-counts", 5)

    def counts(seen: list[Seen]) -> list[tuple[bytes | None, int]]:
        return [(each.key, int.from_bytes(each.value or b"")) for each in seen]

    assert counts(before) == [(b"w%d" % n, number) for n in range(5) for number in (1, 2)]
    assert counts(after) == [(b"w%d" % n, 3) for n in range(5)]
