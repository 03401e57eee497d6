"""KafkaStreams: a topology together with its settings, from start to close."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    CheckpointError,
    ConfigError,
    KafkaStreams,
    LagInfo,
    MissingSerdeError,
    StreamsBuilder,
    StreamsError,
)
from headrace.app import State
from headrace.brokers.log import TopicPartition
from headrace.durations import Duration
from headrace.errors import BrokerUnavailableError
from headrace.home import ApplicationHome
from headrace.metrics import MetricName
from tests.unit.fake_run import FakeRun, Running, faked, program
from tests.waiting import PATIENCE, PATIENTLY, await_that


@pytest.fixture(autouse=True)
def fake_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeRun]]:
    with faked(monkeypatch) as made:
        yield made


def test_an_application_holds_its_topology_and_settings() -> None:
    topology = program().build()

    app = KafkaStreams(topology, {"application.id": "one"}, application_id="two")

    assert app.topology is topology
    assert app.config.application_id == "two"
    assert app.state() is State.CREATED


def test_an_application_needs_an_id() -> None:
    with pytest.raises(ConfigError, match="application_id"):
        KafkaStreams(program().build())


def test_a_missing_serde_shows_when_the_application_is_made() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")

    with pytest.raises(MissingSerdeError):
        KafkaStreams(builder.build(), application_id="app")


def test_an_application_goes_from_created_to_not_running() -> None:
    running = Running().started()

    closed = running.app.close()
    running.wait_for(State.NOT_RUNNING)

    assert closed
    assert running.changes == [
        (State.CREATED, State.REBALANCING),
        (State.REBALANCING, State.RUNNING),
        (State.RUNNING, State.PENDING_SHUTDOWN),
        (State.PENDING_SHUTDOWN, State.NOT_RUNNING),
    ]
    assert running.run.released


def test_it_runs_once_its_topics_were_looked_at() -> None:
    running = Running()
    running.app.start()
    running.run.planned = False  # may come too late for the first look, and then nothing is shown

    assert running.app.state().is_running_or_rebalancing()
    running.run.planned = True
    running.wait_for(State.RUNNING)
    running.app.close()


def test_an_application_starts_once() -> None:
    running = Running().started()

    with pytest.raises(StreamsError) as caught:
        running.app.start()
    running.app.close()

    assert str(caught.value) == (
        "Application 'app' was started before: it is RUNNING. Make a new `KafkaStreams` to run it "
        "again."
    )
    assert len(FakeRun.made) == 1


def test_an_application_that_was_closed_does_not_start() -> None:
    app = KafkaStreams(program().build(), application_id="app")

    assert app.close()
    with pytest.raises(StreamsError, match="it is NOT_RUNNING"):
        app.start()

    assert app.close()
    assert FakeRun.made == []


def test_an_application_that_cannot_start_raises_at_start(fake_run: type[FakeRun]) -> None:
    fake_run.start_error = CheckpointError("The checkpoint is gone.")
    running = Running()

    with pytest.raises(CheckpointError):
        running.app.start()

    assert running.states() == [State.REBALANCING, State.PENDING_ERROR, State.ERROR]
    with pytest.raises(CheckpointError):
        running.app.await_termination()


def test_an_interrupted_start_leaves_an_application_that_has_ended(fake_run: type[FakeRun]) -> None:
    fake_run.start_error = KeyboardInterrupt()
    running = Running()

    with pytest.raises(KeyboardInterrupt):
        running.app.start()

    assert running.app.state() is State.ERROR
    assert running.app.await_termination()
    assert not running.app.close()


def test_without_spark_the_error_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headrace.spark.runner", None)
    app = KafkaStreams(program().build(), application_id="app")

    with pytest.raises(ConfigError, match=r"pip install 'headrace\[spark\]'"):
        app.start()

    assert app.state() is State.CREATED


def test_the_progress_view_is_installed_with_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(
        re.match("rich.*extra == .spark", each) for each in metadata.requires("headrace") or ()
    )
    monkeypatch.delitem(sys.modules, "headrace.foreground", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    app = KafkaStreams(program().build(), application_id="app")

    with pytest.raises(ConfigError, match=r"needs 'rich.console'.*pip install 'headrace\[spark\]'"):
        app.run()


def test_a_query_that_ends_by_itself_ends_the_application() -> None:
    running = Running().started()

    running.run.end()

    assert running.app.await_termination(PATIENTLY)
    assert running.states()[-2:] == [State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert running.app.close()


def test_awaiting_ends_when_its_time_is_over() -> None:
    running = Running().started()

    assert not running.app.await_termination(1)

    running.app.close()


def test_closing_gives_the_running_batch_the_time_that_is_left() -> None:
    running = Running().started()
    running.run.finishes = False

    closed = running.app.close("1h")

    assert not closed
    assert 0 < running.run.stopped_with[0] <= 3_600
    assert running.app.state() is State.NOT_RUNNING


def test_a_with_block_starts_and_closes() -> None:
    with KafkaStreams(program().build(), application_id="app") as app:
        inside = app.state()

    assert inside.is_running_or_rebalancing()
    assert app.state() is State.NOT_RUNNING


def test_a_with_block_shows_its_own_error_first() -> None:
    app = KafkaStreams(program().build(), application_id="app")

    def run() -> None:
        with app:
            FakeRun.made[-1].fail(CheckpointError("The checkpoint is gone."))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()

    assert app.state().has_ended()


def test_a_with_block_shows_the_error_of_the_application() -> None:
    app = KafkaStreams(program().build(), application_id="app")

    def run() -> None:
        with app:
            FakeRun.made[-1].fail(CheckpointError("The checkpoint is gone."))
            with pytest.raises(CheckpointError):
                app.await_termination(PATIENTLY)

    with pytest.raises(CheckpointError):
        run()


@pytest.mark.parametrize(
    ("set_it", "what"),
    [
        (lambda app: app.set_state_listener(None), "a state listener"),
        (lambda app: app.set_uncaught_exception_handler(None), "an uncaught exception handler"),
    ],
)
def test_listeners_and_handlers_are_set_before_the_start(
    set_it: Callable[[KafkaStreams], None], what: str
) -> None:
    running = Running().started()

    with pytest.raises(StreamsError, match=rf"is RUNNING\. Set {what} before `start\(\)`"):
        set_it(running.app)

    running.app.close()


def test_an_application_pauses_and_resumes() -> None:
    running = Running().started()

    running.app.pause()
    paused = running.app.is_paused()
    running.app.resume()
    running.app.close()
    running.app.pause()

    assert paused
    assert running.run.paused == [False, True, False]


def test_an_application_may_be_paused_before_it_starts() -> None:
    running = Running()

    running.app.pause()
    running.started()
    running.app.close()

    assert running.run.paused == [True]


def test_lag_and_metrics_are_those_of_the_run() -> None:
    running = Running()
    before = running.app.lag(), running.app.metrics()
    running.started()

    lag, metrics = running.app.lag(), running.app.metrics()
    running.app.close()

    assert before == ({}, {})
    assert lag == {
        TopicPartition("in", 0): LagInfo(3, 10, 7),
        TopicPartition("in", 1): LagInfo(5, 4, 0),
    }
    assert metrics == {MetricName("stream-metrics", "batches-total"): 2.0}


def test_the_last_batch_is_that_of_the_run() -> None:
    running = Running()
    before = running.app.last_batch()
    running.started()

    at_first = running.app.last_batch()
    running.run.batch = 0
    after_one = running.app.last_batch()
    running.app.close()

    assert (before, at_first, after_one) == (None, None, 0)


def test_a_notebook_shows_what_is_read_as_text_and_not_as_markup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeRun, "positions", lambda _self: iter([("<in>", 1, 3, 10)]))
    running = Running().started()

    shown = running.app._repr_html_()
    running.app.close()

    assert "<td>&lt;in&gt;</td><td>1</td><td>3</td><td>7</td>" in shown
    assert "<b>app</b> RUNNING" in shown


def test_a_run_that_is_still_starting_reports_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running()
    reports: list[Any] = []

    def start(_self: FakeRun) -> bool:
        reports.append((running.app.lag(), running.app.metrics()))
        return True

    monkeypatch.setattr(FakeRun, "start", start)

    running.started()
    running.app.close()

    assert reports == [({}, {})]


def test_state_is_deleted_while_the_application_does_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forgotten: list[str] = []

    def forget(_log: Any, home: ApplicationHome) -> None:
        assert home.lock().is_held(), "no process can start it meanwhile"
        forgotten.append(home.application_id)

    monkeypatch.setattr("headrace.clients.reset.forget_application", forget)
    running = Running(state_dir=tmp_path)

    running.app.clean_up()
    running.started()
    with pytest.raises(StreamsError) as caught:
        running.app.clean_up()
    running.app.close()
    running.app.clean_up()

    assert forgotten == ["app"] * 2
    assert str(caught.value) == (
        "Application 'app' is RUNNING, so its state cannot be deleted. Close it first."
    )


def test_two_threads_cannot_both_start_an_application() -> None:
    running = Running()
    barrier = threading.Barrier(2)
    refused: list[StreamsError] = []

    def start() -> None:
        barrier.wait()
        try:
            running.app.start()
        except StreamsError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    running.app.close()

    assert len(FakeRun.made) == 1
    assert len(refused) == 1


def test_running_in_the_foreground_lays_the_settings_of_the_place_over_the_program_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_NUM_STREAM_THREADS", "3")
    app = KafkaStreams(program().build(), application_id="app", num_stream_threads=1)
    monkeypatch.setattr("headrace.foreground.run_in_foreground", lambda _application: 7)

    assert app.run() == 7
    assert app.config.num_stream_threads == 3
    assert app.config.application_id == "app"


def standing_by(fake_run: type[FakeRun], **settings: Any) -> Running:
    """An application that another process runs."""
    fake_run.others_lead = True
    running = Running(**settings)
    running.app.start()
    return running


def test_an_application_that_another_process_runs_stands_by(
    fake_run: type[FakeRun], caplog: pytest.LogCaptureFixture
) -> None:
    running = standing_by(fake_run)

    assert running.app.state() is State.REBALANCING
    assert running.app.leader() == "Process 7 on elsewhere"
    assert (running.app.lag(), running.app.metrics()) == ({}, {})
    assert running.app.close()
    assert running.states() == [State.REBALANCING, State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert running.run.released
    said = "Process 7 on elsewhere runs application 'app'; this process stands by."
    assert caplog.messages == [said]


def test_a_standby_takes_over_and_is_then_like_any_other(fake_run: type[FakeRun]) -> None:
    running = standing_by(fake_run)
    running.app.pause()

    fake_run.others_lead = False
    running.wait_for(State.RUNNING)

    assert running.app.leader() is None
    assert running.app.metrics()
    assert running.run.paused == [True]
    running.app.close()


def test_a_standby_that_cannot_take_over_ends_with_the_reason(fake_run: type[FakeRun]) -> None:
    running = standing_by(fake_run)

    running.run.led = True
    running.run.takeover_errors = [CheckpointError("The checkpoint is gone.")]

    with pytest.raises(CheckpointError):
        running.app.await_termination(PATIENTLY)
    assert running.app.state() is State.ERROR
    assert running.run.released


def test_a_standby_that_leads_tries_again_to_start(
    fake_run: type[FakeRun], caplog: pytest.LogCaptureFixture
) -> None:
    running = standing_by(fake_run)
    down = BrokerUnavailableError("No answer.")

    running.run.led = True
    running.run.takeover_errors = [down, down]
    fake_run.others_lead = False
    running.wait_for(State.RUNNING)

    assert caplog.text.count("No answer. Starting again in") == 2
    assert running.app.leader() is None
    running.app.close()


@pytest.mark.parametrize(("leads", "task_timeout"), [(True, 0), (False, PATIENTLY)])
def test_a_standby_that_cannot_start_in_time_or_does_not_lead_ends(
    fake_run: type[FakeRun], leads: bool, task_timeout: Duration
) -> None:
    running = standing_by(fake_run, task_timeout=task_timeout)

    running.run.led = leads
    running.run.takeover_errors = [BrokerUnavailableError("No answer.")]

    with pytest.raises(BrokerUnavailableError):
        running.app.await_termination(PATIENTLY)
    assert running.run.released


def test_closing_ends_a_start_that_is_under_way(
    fake_run: type[FakeRun], caplog: pytest.LogCaptureFixture
) -> None:
    fake_run.starts_slowly = True
    running = Running()
    starter = threading.Thread(target=running.app.start)
    starter.start()
    running.wait_for(State.REBALANCING)

    assert running.app.close(PATIENTLY)
    starter.join(PATIENCE)

    assert not starter.is_alive()
    assert running.states() == [State.REBALANCING, State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert running.run.released
    assert running.app.leader() is None
    assert caplog.messages == []


def test_each_first_failure_is_logged_once(
    fake_run: type[FakeRun], caplog: pytest.LogCaptureFixture
) -> None:
    running = Running().started()
    running.run.failures = ["Step 'x' skipped a record."]
    running.run.batch = 0
    await_that(lambda: "Step 'x' skipped" in caplog.text, "the failure")
    running.run.failures = [*running.run.failures, "Step 'y' skipped a record."]

    running.run.end()
    running.wait_for(State.NOT_RUNNING)

    assert running.app.first_failures() == running.run.failures
    assert [m for m in caplog.messages if "skipped" in m] == running.run.failures
