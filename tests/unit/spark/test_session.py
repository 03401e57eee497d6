"""Before Spark starts: which master, where its log goes."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext, java_gateway
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
from pyspark.errors import IllegalArgumentException, PySparkRuntimeError

from headrace import ConfigError, StreamsConfig, StreamsError
from headrace.spark.processes.cds_archive import cds_archive
from headrace.spark.session import (
    _logging_options,
    _quiet,
    _start_java,
    check_settings,
    java_has_ended,
    log_of_java,
    open_session,
)
from tests.unit.spark.fake_java import install
from tests.waiting import PATIENCE

pytestmark = pytest.mark.tier("test")  # starts processes

STARTING: Any = java_gateway
"""Where PySpark looks for what starts Java."""


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "nonsense"])
def test_the_embedded_log_is_refused_where_workers_may_be_elsewhere(master: str) -> None:
    spark = {"spark.master": master}

    with pytest.raises(ConfigError) as caught:
        check_settings(StreamsConfig(application_id="app", spark=spark), is_local=True)

    assert str(caught.value) == (
        "The embedded log is a file on this machine, which the workers of the Spark master "
        f"{master!r} may not reach. Set `bootstrap_servers` to use Kafka, or let `spark.master` "
        "be like 'local[4]'."
    )
    check_settings(StreamsConfig(application_id="app", spark=spark), is_local=False)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]", "local-cluster[2,1,1024]"])
def test_the_embedded_log_is_there_for_workers_on_this_machine(master: str) -> None:
    config = StreamsConfig(application_id="app", spark={"spark.master": master})

    check_settings(config, is_local=True)


@pytest.mark.parametrize("partitions", ["x", "0", "-1", "2.5", ""])
def test_shuffle_partitions_that_are_no_number_are_refused(partitions: str) -> None:
    spark = {"spark.sql.shuffle.partitions": partitions}

    with pytest.raises(ConfigError) as caught:
        check_settings(StreamsConfig(application_id="app", spark=spark), is_local=True)

    assert str(caught.value) == (
        f"`spark.sql.shuffle.partitions` is {partitions!r}. Give a whole number, 1 or more."
    )


def test_output_of_java_goes_to_its_log_and_ours_does_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = STARTING.Popen
    log_file = tmp_path / "spark.log"

    with _quiet(log_file):
        java = STARTING.Popen(
            ["sh", "-c", "read word; echo $word; echo and its workers >&2"],
            stdin=subprocess.PIPE,
            preexec_fn=lambda: None,
        )
        os.write(1, b"ours")
        os.write(2, b"ours too")
        java.communicate(b"from java\n")

    assert STARTING.Popen is before
    assert capfd.readouterr() == ("ours", "ours too")
    assert log_file.read_text() == "from java\nand its workers\n"
    assert log_file.stat().st_mode & 0o777 == 0o600


def test_java_writes_to_its_log_also_where_processes_are_not_copied(tmp_path: Path) -> None:
    with _quiet(tmp_path / "spark.log"):
        STARTING.Popen(["sh", "-c", "echo from java"]).wait()

    assert (tmp_path / "spark.log").read_text() == "from java\n"


INTERRUPTED = """
import os, signal
from headrace.spark.session import _start_java

def ignore_ctrl_c():  # as PySpark does
    signal.signal(signal.SIGINT, signal.SIG_IGN)

signal.signal(signal.SIGINT, lambda *_: os.write(2, b"closing "))
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGINT))
_start_java(["sh", "-c", "echo Java runs >&2"], preexec_fn=ignore_ctrl_c).wait()
os.kill(os.getpid(), signal.SIGINT)
"""


def test_ctrl_c_while_java_is_started_is_for_us_alone() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], stderr=subprocess.PIPE, check=True)

    assert done.stderr == b"Java runs\nclosing "


def test_java_can_be_ended_by_signals_as_ever() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])

    java = _start_java(["sleep", "10"], preexec_fn=lambda: None)
    java.terminate()

    assert java.wait() == -signal.SIGTERM
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_the_settings_of_spark_s_log_name_its_file(tmp_path: Path) -> None:
    option = _logging_options(tmp_path / "spark.log")

    settings = tmp_path / "log4j2.properties"
    assert option == f"-Dlog4j2.configurationFile={settings.as_uri()}"
    assert f"appender.file.fileName = {tmp_path / 'spark.log'}\n" in settings.read_text()
    assert "%d{ISO8601} %p" in settings.read_text()


class FakeSettings:
    """The settings of a session; those of the session's start cannot be changed."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.changed: dict[str, str] = {}

    def isModifiable(self, name: str) -> bool:  # noqa: N802  # Spark's
        return name.startswith("spark.sql.")

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802  # Spark's
        return FakeSession.defaults | self.values | self.changed

    def set(self, name: str, value: str) -> None:
        if value == "nonsense":
            raise IllegalArgumentException(f"[INVALID_CONF_VALUE] {name} should be boolean.\nJVM:")
        self.changed[name] = value


class FakeSession:
    """A session as its builder makes it, without Java."""

    active: FakeSession | None = None
    failure: Exception | None = None
    says = "Spark says something"
    defaults: ClassVar[dict[str, str]] = {}
    """What ``spark-defaults.conf`` has."""
    rolled: ClassVar[list[Path]] = []
    """The logs that are rolled over."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in ("appName", "master"):
            raise AttributeError(name)
        return lambda value: self.config(name, value)

    def config(self, name: str, value: str) -> FakeSession:
        self.values[name] = value
        return self

    def getOrCreate(self) -> FakeSession:  # noqa: N802  # Spark's
        STARTING.Popen(["/bin/cat"], stdin=subprocess.PIPE).communicate(f"{self.says}\n".encode())
        self.environment = dict(os.environ)
        if self.failure is not None:
            raise self.failure
        return self

    def newSession(self) -> FakeSession:  # noqa: N802  # Spark's
        self.conf = FakeSettings(self.values)
        return self


@pytest.fixture
def fake_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeSession]:
    """Opens a session on a Spark that does nothing."""
    java = install(tmp_path / "java", 'openjdk version "17.0.9"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")  # so that it is given back
        monkeypatch.delenv(name)

    class Spark:
        builder = FakeSession()

        @staticmethod
        def getActiveSession() -> FakeSession | None:  # noqa: N802  # Spark's
            return FakeSession.active

    monkeypatch.setattr("headrace.spark.session.SparkSession", Spark)
    monkeypatch.setattr(FakeSession, "active", None)
    monkeypatch.setattr(FakeSession, "failure", None)
    monkeypatch.setattr("headrace.spark.session.python_launcher", lambda: "the launcher")
    monkeypatch.setattr("headrace.spark.session._java_logs", [])
    monkeypatch.setattr(FakeSession, "rolled", [])
    monkeypatch.setattr("headrace.spark.session.keep_rolling", FakeSession.rolled.append)

    def opened(**settings: Any) -> FakeSession:
        config = StreamsConfig(application_id="app", **settings)
        session = open_session(config, tmp_path / "spark.log")
        assert isinstance(session, FakeSession)
        return session

    return opened


def test_a_local_session_is_quiet_and_on_loopback(
    tmp_path: Path, fake_spark: Callable[..., FakeSession], capfd: pytest.CaptureFixture[str]
) -> None:
    session = fake_spark()

    assert (session.values["appName"], session.values["master"]) == ("app", "local[*,4]")
    assert session.values["spark.driver.host"] == "127.0.0.1"
    assert session.values["spark.ui.enabled"] == "false"
    assert session.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert session.environment["PYSPARK_PYTHON"] == "the launcher"
    assert capfd.readouterr().err == ""
    assert "Spark says something" in (tmp_path / "spark.log").read_text()
    assert "log4j2" in session.values["spark.driver.extraJavaOptions"]


SOCKETS = "spark.python.unix.domain.socket"


def test_java_and_python_talk_through_unix_domain_sockets(
    fake_spark: Callable[..., FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.spark.session.socket_directory", lambda: "/run/ours")

    values = fake_spark().values

    assert values[f"{SOCKETS}.enabled"] == "true"
    assert values[f"{SOCKETS}.dir"] == "/run/ours"
    given = {f"{SOCKETS}.enabled": "false"}
    assert fake_spark(spark=given).values[f"{SOCKETS}.enabled"] == "false"


def test_java_and_python_talk_through_tcp_where_there_are_no_unix_domain_sockets(
    fake_spark: Callable[..., FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.spark.session.socket_directory", lambda: None)

    assert f"{SOCKETS}.enabled" not in fake_spark().values


def test_java_uses_the_archive_of_spark_s_classes_if_there_is_one(
    fake_spark: Callable[..., FakeSession], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace")
    without = fake_spark().values["spark.driver.extraJavaOptions"]
    reported = caplog.messages[:]
    caplog.clear()
    archive = cds_archive("17.0.9")
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"classes")

    options = fake_spark().values["spark.driver.extraJavaOptions"]

    assert "-XX:SharedArchiveFile" not in without
    assert any("`headrace warm-up`" in message for message in reported)
    assert f"-XX:SharedArchiveFile={archive}" in options
    assert caplog.messages == []


def test_state_is_kept_as_the_query_needs_it(fake_spark: Callable[..., FakeSession]) -> None:
    session = fake_spark()

    provider = session.values["spark.sql.streaming.stateStore.providerClass"]
    assert provider.endswith("RocksDBStateStoreProvider")
    assert session.conf.changed["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"
    assert "spark.python.worker.reuse" not in session.conf.changed


def test_the_user_s_settings_win(
    fake_spark: Callable[..., FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/python")

    session = fake_spark(spark={"spark.driver.memory": "4g", "spark.sql.adaptive.enabled": "true"})

    assert session.values["spark.driver.memory"] == "4g"
    assert session.conf.changed["spark.sql.adaptive.enabled"] == "true"
    assert session.environment["PYSPARK_PYTHON"] == os.environ["PYSPARK_PYTHON"] == "/their/python"


def test_a_cluster_s_driver_is_left_as_it_is(fake_spark: Callable[..., FakeSession]) -> None:
    session = fake_spark(spark={"spark.master": "spark://host:7077"})

    assert "spark.driver.host" not in session.values
    assert "spark.driver.extraJavaOptions" not in session.values
    assert session.environment["PYSPARK_PYTHON"] == sys.executable


def test_applications_that_start_at_once_do_so_one_after_the_other(
    fake_spark: Callable[..., FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[str] = []
    most: list[int] = []
    one_is_inside = threading.Event()

    def started(session: FakeSession) -> FakeSession:
        inside.append("one")
        most.append(len(inside))
        # Long enough for the other to come in, if it may.
        one_is_inside.wait(0.2)
        one_is_inside.set()
        inside.pop()
        return session

    monkeypatch.setattr(FakeSession, "getOrCreate", started)
    before = STARTING.Popen
    both = [threading.Thread(target=fake_spark) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()

    assert most == [1, 1]
    assert STARTING.Popen is before


def test_the_log_is_that_of_the_application_which_started_java(
    tmp_path: Path, fake_spark: Callable[..., FakeSession]
) -> None:
    own = tmp_path / "second.log"
    assert log_of_java(own) == own

    fake_spark()

    assert log_of_java(own) == tmp_path / "spark.log"


def test_the_log_of_java_is_rolled_over_and_no_other(
    tmp_path: Path, fake_spark: Callable[..., FakeSession]
) -> None:
    fake_spark()
    fake_spark()

    assert FakeSession.rolled == [tmp_path / "spark.log"]


def test_programs_that_are_started_later_do_not_get_the_python_of_this_one(
    fake_spark: Callable[..., FakeSession],
) -> None:
    fake_spark()

    assert not {"PYSPARK_PYTHON", "SPARK_LOCAL_IP"} & os.environ.keys()


def test_a_session_that_is_there_needs_no_other_java(
    fake_spark: Callable[..., FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(FakeSession, "active", FakeSession())

    assert fake_spark().values["appName"] == "app"


ENDED = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
IN_JAVA = Exception(
    "An error occurred while calling None.JavaSparkContext.\n"
    ": org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'\n\tat org.apache"
)
STOPPED = Exception(
    ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis"
)


@pytest.mark.parametrize(
    ("failure", "says", "reason"),
    [
        (
            ENDED,
            "Invalid maximum heap size: -Xmxzz\nError: Could not create the Java Virtual Machine.",
            "Invalid maximum heap size: -Xmxzz",
        ),
        (
            ENDED,
            "WARNING: Using incubator modules\n26/11/16 WARN Utils: Your hostname\n"
            'Exception in thread "main" org.apache.spark.SparkException: Master must be local.\n'
            "\tat org.apache.spark.deploy.SparkSubmit\nCaused by: java.io.IOException: another",
            "org.apache.spark.SparkException: Master must be local",
        ),
        (
            Py4JNetworkError("Answer from Java side is empty"),
            "java.lang.OutOfMemoryError: Java heap space",
            "java.lang.OutOfMemoryError: Java heap space",
        ),
        (
            STOPPED,
            "org.apache.spark.SparkException: Exception thrown in awaitResult\n"
            "26/11/16 ERROR StandaloneSchedulerBackend: Application has been killed. "
            "Reason: All masters are unresponsive! Giving up.",
            "All masters are unresponsive! Giving up",
        ),
        (ConnectionRefusedError(111, "Connection refused"), "", "[Errno 111] Connection refused"),
        (
            IN_JAVA,
            "java.io.IOException: by the way",
            "org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'",
        ),
    ],
)
def test_a_spark_that_does_not_start_is_an_error_with_the_line_of_the_cause(
    tmp_path: Path,
    fake_spark: Callable[..., FakeSession],
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    says: str,
    reason: str,
) -> None:
    log_file = tmp_path / "spark.log"
    log_file.write_text("java.lang.Error: of an earlier start\n")
    monkeypatch.setattr(FakeSession, "failure", failure)
    monkeypatch.setattr(FakeSession, "says", says)

    with pytest.raises(StreamsError) as caught:
        fake_spark(num_stream_threads=2)

    assert str(caught.value) == (
        f"Spark does not start on master 'local[2,4]': {reason}. Correct `spark.master` or the "
        f"other `spark` settings. The log is {str(log_file)!r}."
    )


def test_the_reason_of_a_failed_start_is_found_after_a_roll_over_too(
    tmp_path: Path, fake_spark: Callable[..., FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_file = tmp_path / "spark.log"
    log_file.write_text("of an earlier start\n" * 100)

    def started(_session: FakeSession) -> FakeSession:
        log_file.write_text("Invalid maximum heap size: -Xmxzz\n")
        raise ENDED

    monkeypatch.setattr(FakeSession, "getOrCreate", started)

    with pytest.raises(StreamsError, match=r"on master .*: Invalid maximum heap size: -Xmxzz\."):
        fake_spark()


def test_a_setting_of_spark_s_own_file_that_breaks_exactly_once_is_refused(
    fake_spark: Callable[..., FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = {"spark.speculation": "true", "spark.sql.streaming.offsetLog.formatVersion": "1"}
    monkeypatch.setattr(FakeSession, "defaults", defaults)

    with pytest.raises(ConfigError) as caught:
        fake_spark()

    assert str(caught.value) == (
        "Spark has 'spark.speculation' = true, but a task that runs twice would write twice. "
        "Remove it from `spark-defaults.conf`, or from the program that started Spark."
    )


def test_a_setting_of_spark_s_own_file_that_we_set_ourselves_does_no_harm(
    fake_spark: Callable[..., FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    monkeypatch.setattr(FakeSession, "defaults", {name: "1"})

    assert fake_spark().conf.getAll[name] == "2"


def test_a_setting_that_spark_does_not_take_is_named(
    fake_spark: Callable[..., FakeSession],
) -> None:
    with pytest.raises(ConfigError) as caught:
        fake_spark(spark={"spark.sql.adaptive.enabled": "nonsense"})

    assert str(caught.value) == (
        "Spark does not take a setting: [INVALID_CONF_VALUE] spark.sql.adaptive.enabled should be "
        "boolean. Correct it in `spark`."
    )


@pytest.mark.parametrize(("program", "has_ended"), [("pass", True), ("input()", False)])
def test_a_java_that_has_ended_is_known(
    monkeypatch: pytest.MonkeyPatch, program: str, has_ended: bool
) -> None:
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))

        assert java_has_ended(PATIENCE if has_ended else 0) is has_ended

        process.kill()


def test_without_a_java_none_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)

    assert not java_has_ended()


def test_a_connection_of_java_that_breaks_prints_no_traceback(
    capfd: pytest.CaptureFixture[str], fake_spark: Callable[..., FakeSession]
) -> None:
    fake_spark()

    servers: list[Any] = [AccumulatorTCPServer, AccumulatorUnixServer]
    for server in servers:
        server.handle_error(None, None, None)

    assert capfd.readouterr().err == ""
