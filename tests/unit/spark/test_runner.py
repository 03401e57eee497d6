"""One run: the lock, the run files, the query and its errors. Without Spark."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext

from headrace import (
    CheckpointError,
    NoOffsetForPartitionError,
    ProducerFencedError,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    UnknownTopicError,
    UnshippableError,
)
from headrace.brokers import open_log
from headrace.engine.record_failures import FirstFailure
from headrace.engine.samples import SourceSamples
from headrace.metrics import Histogram, MetricName
from headrace.records import NO_HEADERS, ProducerRecord
from headrace.runtime.checkpoint.layout import read_layout
from headrace.runtime.run_files import BatchResult, Control, PlannerStatus, Restarts, Totals
from headrace.spark.runner import Run
from headrace.spark.worker_errors import WorkerFailure
from tests.application_home import embedded_home
from tests.unit.spark.fake_query import FakeQuery, faked_queries, run_of, started
from tests.waiting import PATIENCE


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[FakeQuery]:
    """The queries that were started."""
    return faked_queries(monkeypatch)


@pytest.mark.parametrize(
    ("settings", "partitions"),
    [({}, 2), ({"spark": {"spark.sql.shuffle.partitions": "7"}}, 7)],
)
def test_a_shuffle_has_no_more_partitions_than_there_are_cores_or_as_many_as_are_asked_for(
    tmp_path: Path, queries: list[FakeQuery], settings: dict[str, Any], partitions: int
) -> None:
    run = started(tmp_path, **settings)

    layout = read_layout("app", run.checkpoint.folder)
    run.release()
    assert layout is not None
    assert layout.shuffle_partitions == partitions
    assert len(queries) == 1


def test_a_second_run_stands_by_until_the_first_is_over(
    tmp_path: Path, queries: list[FakeQuery]
) -> None:
    first, second = run_of(tmp_path), run_of(tmp_path)
    assert first.start()

    assert not second.start()
    second.pause(paused=True)
    assert not second.take_over(0)
    assert second.leader() == f"Process {os.getpid()} on {platform.node()}"
    assert len(queries) == 1
    first.release()

    assert second.take_over(0)
    assert len(queries) == 2
    assert second.run_files.read(Control) == Control(paused=True)
    second.release()


def test_a_standby_that_never_led_stops_and_leaves_nothing(
    tmp_path: Path, queries: list[FakeQuery]
) -> None:
    first, second = started(tmp_path), run_of(tmp_path)

    assert not second.start()
    assert second.stop(0)
    second.release()

    assert first.is_active()
    first.release()
    started(tmp_path).release()


def test_each_leader_ends_the_transactions_of_the_one_before(
    tmp_path: Path, queries: list[FakeQuery]
) -> None:
    run = started(tmp_path)
    log = open_log(StreamsConfig(application_id="app", state_dir=tmp_path))
    session = log.open_producer({"transactional.id": "app-1"})
    session.begin_transaction()
    run.release()

    started(tmp_path).release()

    record = ProducerRecord("in", 0, 1, b"k", b"v", NO_HEADERS)
    with pytest.raises(ProducerFencedError):  # noqa: PT012  # which of them tells is up to the log
        session.send(record, lambda *_: None)
        session.commit_transaction()
    session.close()
    log.close()


@pytest.mark.parametrize("ask", [Run.is_active, Run.error, lambda run: run.stop(0)])
def test_a_spark_session_that_was_stopped_is_an_error(
    tmp_path: Path, queries: list[FakeQuery], ask: Callable[[Run], Any]
) -> None:
    run = started(tmp_path)
    run._query = Gone()

    with pytest.raises(StreamsError) as caught:
        ask(run)

    assert str(caught.value) == (
        "Spark failed under application 'app': Answer from Java side is empty. Start it again. "
        f"The log is {str(embedded_home(tmp_path).spark_log)!r}."
    )
    run.release()


def test_a_java_that_was_killed_is_named_with_its_log(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = SimpleNamespace(returncode=-9, wait=lambda _seconds: -9)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=killed))
    run = started(tmp_path)
    run._query = Gone()

    with pytest.raises(StreamsError) as caught:
        run.is_active()

    assert str(caught.value) == (
        "The Java process (JVM) of application 'app' has ended: it was killed, or ran out of "
        "memory. Start the application again. "
        f"The log is {str(embedded_home(tmp_path).spark_log)!r}."
    )
    run.release()


class Gone:
    """A query whose Java is gone."""

    def __getattr__(self, name: str) -> Any:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_a_run_that_cannot_start_holds_nothing(tmp_path: Path, queries: list[FakeQuery]) -> None:
    with pytest.raises(UnknownTopicError):
        started(tmp_path, partitions=None)

    started(tmp_path).release()
    assert len(queries) == 1


def test_auto_offset_reset_none_is_an_error_before_java_starts(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setattr("headrace.spark.runner.open_session", lambda *_: opened.append("Java"))

    with pytest.raises(NoOffsetForPartitionError, match='`auto_offset_reset` is "none"'):
        started(tmp_path, consumer={"auto.offset.reset": "none"})

    assert opened == []


def test_a_run_is_active_while_its_query_is(tmp_path: Path, queries: list[FakeQuery]) -> None:
    run = run_of(tmp_path)
    before = run.is_active(), run.error()
    run.start()
    during = run.is_active(), run.error()
    queries[0].isActive = False

    assert before == (False, None)
    assert during == (True, None)
    assert not run.is_active()
    run.release()


def test_a_failed_query_is_started_again(tmp_path: Path, queries: list[FakeQuery]) -> None:
    run = started(tmp_path)
    queries[0].stop()

    run.restart()

    assert len(queries) == 2
    assert run.is_active()
    run.release()


def test_an_error_of_ours_is_raised_unchanged(tmp_path: Path, queries: list[FakeQuery]) -> None:
    run = started(tmp_path)
    text = str(WorkerFailure(UnknownTopicError("in")))
    queries[0].failure = Exception(f"Job aborted\nPythonException: {text}\n\tat org.apache.spark")

    error = run.error()

    assert isinstance(error, UnknownTopicError)
    assert "org.apache" not in str(error)
    run.release()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Job aborted\nTraceback\nModuleNotFoundError: No module named 'x'\n\tat org", "Module"),
        ("java.lang.OutOfMemoryError: Java heap space\n\tat org", "java.lang.OutOfMemoryError"),
        ("[STATE] something\n\tat org", "[STATE] something"),
        ("", "no reason given"),
        ("[STREAM_FAILED] Query [id = 1] terminated (no cause message)", "no reason given"),
    ],
)
def test_another_error_is_one_line_with_the_path_of_the_log(
    tmp_path: Path, queries: list[FakeQuery], text: str, reason: str
) -> None:
    run = started(tmp_path)
    queries[0].failure = Exception(text)

    error = run.error()

    assert type(error) is StreamsError
    start = f"Spark ended the query of application 'app': {reason}"
    assert str(error).startswith(start)
    assert str(error).endswith(f"The log is {str(embedded_home(tmp_path).spark_log)!r}.")
    assert "\n" not in str(error)
    run.release()


class FailedInJava(Exception):  # noqa: N818  # in place of PySpark's
    """An error as PySpark keeps one: with what caused it in Java."""

    def __init__(self, text: str, cause: Exception) -> None:
        super().__init__(text)
        self._cause = cause


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("java.io.EOFException", "a Python process died, killed or out of memory"),
        ("java.io.IOException: Broken pipe", "a Python process died, killed or out of memory"),
        ("java.lang.NullPointerException\n\tat org", "java.lang.NullPointerException."),
    ],
)
def test_the_cause_replaces_an_empty_message_of_spark(
    tmp_path: Path, queries: list[FakeQuery], cause: str, reason: str
) -> None:
    run = started(tmp_path)
    silent = "[STREAM_FAILED] Query [id = 1] terminated with exception:  (no cause message)\n=== =="
    queries[0].failure = FailedInJava(silent, Exception(cause))

    error = run.error()

    assert type(error) is StreamsError
    assert str(error).startswith(f"Spark ended the query of application 'app': {reason}")
    assert str(error).endswith(f"The log is {str(embedded_home(tmp_path).spark_log)!r}.")
    run.release()


def test_an_error_of_ours_is_found_in_what_caused_spark_s(
    tmp_path: Path, queries: list[FakeQuery]
) -> None:
    run = started(tmp_path)
    cause = Exception(str(WorkerFailure(UnknownTopicError("in"))))
    queries[0].failure = FailedInJava("(no cause message)", cause)

    assert isinstance(run.error(), UnknownTopicError)
    run.release()


def test_restarts_are_counted_by_the_error_before(tmp_path: Path, queries: list[FakeQuery]) -> None:
    run = started(tmp_path)
    for _ in range(2):
        queries[-1].fail(RuntimeError("it broke"))
        run.restart()

    assert run.run_files.read(Restarts).counts == {"StreamsError": 2}
    run.release()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FailedInJava("", Exception("java.io.IOException: No space left on device")), "cannot be"),
        (AssertionError(), "no reason given"),
    ],
)
def test_a_query_that_cannot_be_restarted_is_an_error(
    tmp_path: Path,
    queries: list[FakeQuery],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: str,
) -> None:
    run = started(tmp_path)

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("headrace.spark.runner.start_query", refuse)

    with pytest.raises(StreamsError, match=kind):
        run.restart()
    run.release()


@pytest.mark.tier("test")  # starts a process
def test_a_file_with_the_name_of_a_module_of_python_is_refused_on_this_machine(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)

    with pytest.raises(UnshippableError, match=r"Python's own module 'json'\. Rename it\."):
        run_of(tmp_path).start()

    assert queries == []
    assert not (tmp_path / "app").exists()


def test_closing_leaves_a_check_that_waits_for_its_broker(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, test_is_over = threading.Event(), threading.Event()

    def waits(*_: object) -> None:
        closing.set()
        test_is_over.wait(PATIENCE)

    with monkeypatch.context() as patch:
        patch.setattr("headrace.spark.runner.check_start", waits)
        assert not run_of(tmp_path, closing=closing).start()
    test_is_over.set()

    assert queries == []
    started(tmp_path).release()


class Undecided:
    """A leadership without a leader."""

    leader_epoch = 0
    start_timeout = PATIENCE

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self.released = 0

    def wait(self, _seconds: float) -> bool:
        self._closing.set()
        return False

    def is_lost(self) -> bool:
        return False

    def release(self, *, whole_application: bool) -> None:
        assert not whole_application
        self.released += 1


def test_closing_ends_the_wait_for_the_leadership(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = threading.Event()
    leadership = Undecided(closing)
    monkeypatch.setattr("headrace.spark.runner.open_leadership", lambda *_: leadership)

    assert not run_of(tmp_path, closing=closing).start()

    assert leadership.released == 1
    assert queries == []


def test_closing_while_java_starts_waits_for_it_and_starts_nothing_else(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, reported = threading.Event(), list[str]()

    def open_session(*_: object) -> SimpleNamespace:
        closing.set()
        time.sleep(0.1)
        reported.append("Java is there")
        return SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))

    with monkeypatch.context() as patch:
        patch.setattr("headrace.spark.runner.open_session", open_session)
        assert not run_of(tmp_path, closing=closing).start()

    assert reported == ["Java is there"]
    assert queries == []
    started(tmp_path).release()


@pytest.mark.parametrize(
    ("trigger", "spark_s"),
    [("continuous", "continuous"), ("1h", "continuous"), ("available_now", "available_now")],
)
def test_spark_asks_all_the_time_because_the_planner_keeps_the_interval(
    tmp_path: Path, queries: list[FakeQuery], trigger: str, spark_s: str
) -> None:
    started(tmp_path, trigger=trigger).release()

    assert [query.trigger for query in queries] == [spark_s]


@pytest.mark.parametrize(
    ("tell", "reported"),
    [
        (lambda run: run.pause(paused=True), Control(paused=True)),
        (lambda run: run.set_clock(5), Control(clock=5)),
    ],
)
def test_a_request_of_the_application_reaches_the_planner(
    tmp_path: Path, queries: list[FakeQuery], tell: Callable[[Run], None], reported: Control
) -> None:
    run = started(tmp_path)

    tell(run)

    assert run.run_files.read(Control) == reported
    run.release()


def test_the_last_request_wins_whichever_thread_writes_first(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(tmp_path)
    write, stops = run.run_files.write, list[threading.Thread]()

    def leave_late(note: Control) -> None:
        if not stops:
            stops.append(threading.Thread(target=run.stop, args=(0,)))
            stops[0].start()
            stops[0].join(0.2)  # it may have to wait for this thread
        write(note)

    monkeypatch.setattr(run.run_files, "write", leave_late)
    run.pause(paused=True)
    stops[0].join(PATIENCE)

    assert run.run_files.read(Control) == Control(stopping=True, paused=True)
    run.release()


def test_a_pause_after_the_run_is_not_written(tmp_path: Path, queries: list[FakeQuery]) -> None:
    run = started(tmp_path)
    run.release()

    run.pause(paused=True)
    run.pause(paused=False)

    assert list((tmp_path / "app").glob("run-*")) == []


def test_a_source_whose_pattern_matches_no_topic_has_looked_too(
    tmp_path: Path, queries: list[FakeQuery]
) -> None:
    run = started(tmp_path)
    before = run.has_planned()

    run.run_files.write(PlannerStatus(limit=20_000))

    assert (before, run.has_planned()) == (False, True)
    run.release()


def test_the_first_failures_name_the_line_or_the_step(
    tmp_path: Path, queries: list[FakeQuery]
) -> None:
    run = started(tmp_path)
    (source, *_) = run.plan.subtopologies[0].nodes.values()
    failures = [
        FirstFailure("step", "processing", "One failed", "app.py:7"),
        FirstFailure(source.name, "deserialization", "Two failed", None),
        FirstFailure("store", "serialization", "Three failed", None),
    ]
    run.run_files.write(BatchResult(1, [], Totals(failures=failures)))

    assert run.first_failures() == [
        "One failed, at app.py:7.",
        f"Two failed, at {source.origin}.",
        "Three failed.",
    ]
    assert source.origin is not None
    run.release()


def test_the_totals_can_be_read_after_the_run(tmp_path: Path, queries: list[FakeQuery]) -> None:
    run = started(tmp_path)
    before = run.has_planned(), run.batch_number(), list(run.positions())
    totals = Totals(
        batches=2,
        processed={"0_0": 5},
        dropped={"0_0": {"node": {"late": 1}, "in": {"lost": 3}}, "0_1": {"in": {"lost": 4}}},
        written={"out": 4},
        refused={"out": 1},
        bytes_consumed={"in": {0: 10, 1: 20}},
        bytes_produced={"out": 7},
        latencies={"out": Histogram([3, 1], 2.0)},
        samples={"0": {"source": SourceSamples(Histogram([2], 4e-6), Histogram([2], 3.0))}},
    )
    run.run_files.write(PlannerStatus(offsets={"in": [3, 4]}, ends={"in": [9, 4]}, seconds=0.5))
    run.run_files.write(BatchResult(1, [], totals))

    run.release()

    metrics = run.metrics()
    assert before == (False, -1, [])
    assert (run.has_planned(), run.batch_number()) == (True, 1)
    assert list(run.positions()) == [("in", 0, 3, 9), ("in", 1, 4, 4)]
    assert metrics[MetricName("stream-metrics", "batches-total")] == 2
    assert metrics[MetricName("stream-metrics", "lost-offsets-total")] == 7
    tags = (("topic", "out"),)
    assert metrics[MetricName("stream-topic-metrics", "records-refused-total", tags)] == 1
    assert metrics[MetricName("stream-topic-metrics", "records-produced-total", tags)] == 4
    assert metrics[MetricName("stream-topic-metrics", "bytes-produced-total", tags)] == 7
    assert metrics[MetricName("stream-topic-metrics", "record-e2e-latency-avg", tags)] == 500
    tags = (("topic", "in"),)
    assert metrics[MetricName("stream-topic-metrics", "bytes-consumed-total", tags)] == 30
    node = (("subtopology", "0"), ("processor-node-id", "source"))
    group = "stream-processor-node-metrics"
    assert metrics[MetricName(group, "process-latency-avg", node)] == 2_000
    assert metrics[MetricName(group, "record-lateness-avg", node)] == 1_500
    processed = MetricName("stream-task-metrics", "process-total", (("task-id", "0_0"),))
    assert metrics[processed] == 5
    assert [path.name for path in (tmp_path / "app").glob("run-*")] == []


def test_the_error_of_a_process_with_its_own_state_names_the_leader_and_how_to_stand_by(
    tmp_path: Path, queries: list[FakeQuery]
) -> None:
    log = tmp_path / "topics.db"
    first = started(tmp_path / "one", embedded_path=log)
    second = run_of(tmp_path / "two", embedded_path=log)

    with pytest.raises(CheckpointError) as caught:
        second.start()

    folder = str(embedded_home(tmp_path / "one").work)
    assert str(caught.value) == (
        f"Application 'app' runs in {folder!r}. Process {os.getpid()} on {platform.node()} runs "
        "it. To stand by for that process, start the same program with its `state.dir`, "
        f"{str(tmp_path / 'one')!r}, or stop that process first."
    )
    assert first.is_active()
    first.release()


def test_a_process_with_its_own_work_dir_does_not_lead_beside_another(
    tmp_path: Path, queries: list[FakeQuery]
) -> None:
    first = started(tmp_path, work_dir=tmp_path / "one")
    second = run_of(tmp_path, work_dir=tmp_path / "two")

    with pytest.raises(CheckpointError, match=rf"`work.dir`, '{tmp_path / 'one'}'"):
        second.start()

    first.release()
    assert second.start()
    second.release()


def test_no_reset_is_advised_while_another_process_runs(
    tmp_path: Path, queries: list[FakeQuery]
) -> None:
    first = started(tmp_path)
    builder = StreamsBuilder()
    builder.stream("other", key=str, value=int).to("out")
    other = Run(builder.build(), StreamsConfig(application_id="app", state_dir=tmp_path))

    with pytest.raises(CheckpointError, match=r"no longer fits[^`]*Process \d+ on \S+ runs it\."):
        other.start()
    first.release()

    with pytest.raises(CheckpointError, match=r"no longer fits[^$]*`headrace reset app`"):
        other.start()
