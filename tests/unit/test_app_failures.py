"""KafkaStreams when its query fails: another attempt, the handler, or the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headrace import (
    KafkaStreams,
    StreamsError,
)
from headrace.app import State, StreamThreadExceptionResponse
from headrace.errors import BrokerUnavailableError, LeadershipLostError, ProcessingError
from headrace.examples.greetings import app as greetings
from tests.unit.fake_run import FakeRun, Running, faked, program
from tests.waiting import PATIENCE, PATIENTLY

REPLACE = StreamThreadExceptionResponse.REPLACE_THREAD
SHUT_DOWN = StreamThreadExceptionResponse.SHUTDOWN_CLIENT


@pytest.fixture(autouse=True)
def fake_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeRun]]:
    with faked(monkeypatch) as made:
        yield made


def test_a_permanent_error_ends_the_application() -> None:
    running = Running().started()
    failure = ProcessingError("Step 'x' failed.")

    running.run.fail(failure)

    with pytest.raises(ProcessingError) as caught:
        running.app.await_termination(PATIENTLY)
    assert caught.value is failure
    assert running.states()[-2:] == [State.PENDING_ERROR, State.ERROR]
    assert running.run.calls.empty()
    assert running.run.released


def test_a_retriable_error_restarts_the_query() -> None:
    running = Running().started()
    down = BrokerUnavailableError("No answer.")
    running.run.failing_restarts = [down, down]

    running.run.fail(down)

    for _ in range(3):
        assert running.run.calls.get(timeout=PATIENCE) == "restart"
    running.wait_for(State.RUNNING)
    assert State.ERROR not in running.states()
    assert running.app.close()


def recording_handler(running: Running) -> list[StreamsError]:
    """Make a handler start the query again; return what it is asked about."""
    asked: list[StreamsError] = []

    def handler(error: StreamsError) -> StreamThreadExceptionResponse:
        asked.append(error)
        return REPLACE

    running.app.set_uncaught_exception_handler(handler)
    return asked


def test_a_query_that_cannot_be_restarted_is_retried_too() -> None:
    running = Running()
    asked = recording_handler(running)
    running.started()
    down, silent = BrokerUnavailableError("No answer."), StreamsError("Spark says nothing.")
    running.run.restart_errors = [silent]

    running.run.fail(down)

    for _ in range(2):
        assert running.run.calls.get(timeout=PATIENCE) == "restart"
    running.wait_for(State.RUNNING)
    assert asked == [down, silent]
    assert running.app.close()


def test_an_error_that_outlasts_the_timeout_ends_the_application() -> None:
    running = Running(task_timeout=0).started()

    running.run.fail(BrokerUnavailableError("No answer."))

    with pytest.raises(BrokerUnavailableError):
        running.app.await_termination(PATIENTLY)


class Clock:
    """Replaces the module `time`: a test sets the time."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def failed_twice(monkeypatch: pytest.MonkeyPatch, *, looked_after: float) -> Running:
    """Return an application without batches that fails, and again after more than its task timeout.

    Args:
        monkeypatch: Sets the clock.
        looked_after: When the query last looked at its topics, in seconds after its restart.
    """
    clock = Clock()
    monkeypatch.setattr("headrace.app.time", clock)
    running = Running(task_timeout="5m").started()
    down = BrokerUnavailableError("No answer.")
    running.run.fail(down)
    assert running.run.calls.get(timeout=PATIENCE) == "restart"
    running.wait_for(State.RUNNING)
    seen, look = threading.Event(), clock.now + looked_after

    def last_look() -> float:
        seen.set()
        return look

    monkeypatch.setattr(running.run, "last_look", last_look)
    assert seen.wait(PATIENCE)
    clock.now += 3_600
    running.run.fail(down)
    return running


def test_an_idle_application_that_worked_since_its_last_failure_is_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = failed_twice(monkeypatch, looked_after=60)

    assert running.run.calls.get(timeout=PATIENCE) == "restart"
    running.wait_for(State.RUNNING)
    assert running.app.close()


def test_an_application_that_only_looked_at_its_topics_once_has_not_worked_since_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = failed_twice(monkeypatch, looked_after=1)

    with pytest.raises(BrokerUnavailableError):
        running.app.await_termination(PATIENTLY)
    assert running.run.calls.empty()


def test_the_pause_between_attempts_grows_until_there_is_progress(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headrace.app._FIRST_BACK_OFF", 0.1)
    monkeypatch.setattr("headrace.app._LAST_BACK_OFF", 0.2)
    running = Running().started()
    down = BrokerUnavailableError("No answer.")
    running.run.failing_restarts = [down, down]
    waited: list[float] = []
    wait = running.app._closing.wait

    def noted(seconds: float | None = None) -> bool:
        if seconds is not None and seconds >= 0.1:
            waited.append(seconds)
            seconds = 0
        return wait(seconds)

    monkeypatch.setattr(running.app._closing, "wait", noted)

    running.run.fail(down)
    for _ in range(3):
        running.run.calls.get(timeout=PATIENCE)
    running.wait_for(State.RUNNING)
    running.run.batch += 1
    running.run.fail(down)
    running.run.calls.get(timeout=PATIENCE)
    running.app.close()

    # Whether the batch was seen before the failure is up to the threads.
    assert waited[:3] == [0.1, 0.2, 0.2]
    assert waited[3] in (0.1, 0.2)
    assert "No answer. Starting again in 0.1 s." in caplog.text


UNFINISHED = (
    "No answer. Application 'app' is closed before a retry; its next start finishes the last batch."
)


def test_closing_does_not_wait_for_another_attempt_and_returns_false(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headrace.app._FIRST_BACK_OFF", 10.0**6)
    running = Running()
    asked = recording_handler(running)
    running.started()
    down = BrokerUnavailableError("No answer.")
    running.run.fail(down)
    running.wait_for(State.REBALANCING)

    assert not running.app.close()
    assert running.run.calls.empty()
    assert asked == [down]
    assert running.states()[-2:] == [State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert UNFINISHED in caplog.text


def test_a_batch_that_fails_while_the_application_closes_is_not_finished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Running().started()
    running.run.fails_when_stopped = BrokerUnavailableError("No answer.")

    assert not running.app.close()
    assert running.states()[-2:] == [State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert UNFINISHED in caplog.text


def test_closing_raises_a_permanent_error() -> None:
    running = Running().started()
    failure = ProcessingError("Step 'x' failed.")
    running.run.fails_when_stopped = failure

    with pytest.raises(ProcessingError) as caught:
        running.app.close()

    assert caught.value is failure
    assert running.states()[-3:] == [
        State.PENDING_SHUTDOWN,
        State.PENDING_ERROR,
        State.ERROR,
    ]


def test_closing_after_an_attempt_that_did_not_start_logs_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running().started()

    def restart() -> None:
        running.app._closing.set()
        raise StreamsError("Spark says nothing.")

    monkeypatch.setattr(running.run, "restart", restart)

    running.run.fail(BrokerUnavailableError("No answer."))

    assert running.app.await_termination(PATIENTLY)
    assert not running.app.close()
    assert "Spark says nothing. Application 'app' is closed before a retry" in caplog.text


def test_a_handler_may_replace_what_would_come_again() -> None:
    running = Running()
    asked: list[StreamsError] = []

    def handler(error: StreamsError) -> StreamThreadExceptionResponse:
        asked.append(error)
        return REPLACE if len(asked) < 3 else SHUT_DOWN

    running.app.set_uncaught_exception_handler(handler)
    running.started()
    failures: list[StreamsError] = [ProcessingError(f"Failure {number}.") for number in range(3)]
    running.run.failing_restarts = failures[1:]

    running.run.fail(failures[0])

    with pytest.raises(ProcessingError, match=r"Failure 2\."):
        running.app.await_termination(PATIENTLY)
    assert asked == failures
    assert running.run.calls.qsize() == 2


@pytest.mark.parametrize(
    ("response", "whole_application"),
    [(SHUT_DOWN, False), (StreamThreadExceptionResponse.SHUTDOWN_APPLICATION, True)],
)
def test_a_handler_may_end_an_application_that_would_retry(
    response: StreamThreadExceptionResponse, whole_application: bool
) -> None:
    running = Running()
    running.app.set_uncaught_exception_handler(lambda _error: response)
    running.started()

    running.run.fail(BrokerUnavailableError("No answer."))

    with pytest.raises(BrokerUnavailableError):
        running.app.await_termination(PATIENTLY)
    assert running.run.calls.empty()
    assert running.run.ended_for_all is whole_application


@pytest.mark.parametrize("own", [ValueError("broken"), SystemExit("broken")])
def test_a_handler_that_fails_ends_the_application_with_the_error_it_was_asked_about(
    caplog: pytest.LogCaptureFixture, own: BaseException
) -> None:
    def handler(_error: StreamsError) -> StreamThreadExceptionResponse:
        raise own

    running = Running()
    running.app.set_uncaught_exception_handler(handler)
    running.started()
    failure = BrokerUnavailableError("No answer.")

    running.run.fail(failure)

    with pytest.raises(BrokerUnavailableError) as caught:
        running.app.await_termination(PATIENTLY)
    assert caught.value is failure
    assert caught.value.__notes__ == [f"The uncaught exception handler failed too: {own!r}"]
    assert running.states()[-2:] == [State.PENDING_ERROR, State.ERROR]
    assert "The uncaught exception handler failed at: No answer." in caplog.text
    assert f"{type(own).__name__}: broken" in caplog.text


def test_the_handler_of_the_example_greetings_stops_its_application() -> None:
    running = Running()
    running.app.set_uncaught_exception_handler(greetings.stop)
    running.started()
    failure = ProcessingError("The greeting is a transient error.")

    running.run.fail(failure)

    with pytest.raises(ProcessingError):
        running.app.await_termination(PATIENTLY)
    assert running.run.calls.empty()
    assert running.run.ended_for_all is False


def test_a_handler_may_close_the_application() -> None:
    running = Running()
    answers: list[bool] = []

    def handler(_error: StreamsError) -> StreamThreadExceptionResponse:
        answers.append(running.app.close())
        return REPLACE

    running.app.set_uncaught_exception_handler(handler)
    running.started()

    running.run.fail(BrokerUnavailableError("No answer."))

    assert running.app.await_termination(PATIENTLY)
    assert answers == [False]
    assert running.app.state() is State.NOT_RUNNING


def test_a_listener_that_fails_does_not_keep_the_application_from_ending(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def listener(_new: State, _old: State) -> None:
        raise ValueError("broken")

    app = KafkaStreams(program().build(), application_id="app")
    app.set_state_listener(listener)

    app.start()

    assert app.close(PATIENTLY)
    assert "The state listener failed at PENDING_SHUTDOWN." in caplog.text


@pytest.mark.parametrize("broken", ["stop", "release"])
def test_an_end_in_disorder_is_an_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    running = Running().started()

    def fail(*_: object) -> None:
        raise OSError("Broken pipe")

    running.run.end()
    monkeypatch.setattr(running.run, broken, fail)

    assert running.app.await_termination(PATIENTLY)
    assert "Application 'app' did not shut down cleanly." in caplog.text


def test_a_process_that_lost_leadership_stops_despite_the_handler() -> None:
    running = Running()
    running.app.set_uncaught_exception_handler(lambda _error: REPLACE)
    running.started()

    running.run.fail(LeadershipLostError("app"))

    with pytest.raises(LeadershipLostError) as caught:
        running.app.await_termination(PATIENTLY)
    assert str(caught.value) == (
        "Another process has taken over application 'app' and finishes its work, so this one "
        "stops. Start it again to stand by."
    )
    assert running.states()[-2:] == [State.PENDING_ERROR, State.ERROR]
    assert running.run.calls.empty()


def test_a_process_that_lost_leadership_stops_its_running_query() -> None:
    running = Running().started()

    running.run.lost_leadership = True

    with pytest.raises(LeadershipLostError):
        running.app.await_termination(PATIENTLY)
    assert running.run.stopped_with == [0]
    assert running.run.released
