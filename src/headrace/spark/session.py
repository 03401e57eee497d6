"""The Spark session an application runs in, with the settings that matter."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext, java_gateway
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
from pyspark.errors import IllegalArgumentException, PySparkRuntimeError
from pyspark.sql import SparkSession

from headrace.config import StreamsConfig
from headrace.config.streams_config import spark_problems
from headrace.errors import ConfigError, StreamsError
from headrace.spark.masters import is_on_this_machine, master_of
from headrace.spark.processes.cds_archive import archive_options, cds_archive
from headrace.spark.processes.java import find_java
from headrace.spark.processes.rolling_log import keep_rolling, read_since, roll_over
from headrace.spark.processes.worker_startup import (
    python_launcher,
    restore_python_folders,
    socket_directory,
)
from headrace.spark.worker_errors import jvm_exit_reason, reason_of

_log = logging.getLogger("headrace")

_JAVA_ENDED = (PySparkRuntimeError, Py4JNetworkError, OSError)
"""PySpark raises these if there is no Java, or it has ended."""

WITHOUT_ARCHIVE = (
    "Spark starts without an archive of its classes. `headrace warm-up`, once on this machine, "
    "halves the time that takes."
)

_STREAMING = "org.apache.spark.sql.execution.streaming"

_ACCUMULATOR_SERVERS: tuple[Any, ...] = (AccumulatorTCPServer, AccumulatorUnixServer)

_one_at_a_time = threading.Lock()
"""A start of Java changes the environment of this process."""
_java_logs: list[Path] = []
"""The log of the application that started Java, once there is one."""

SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Counting rows makes each put read first.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # The default one starts a process for each file on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # A payload may have several MB, and an Arrow array at most 2 GB.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20),
    "spark.python.worker.reuse": "true",
}
"""The settings of every query; the user's ``spark`` settings win, if they are allowed."""

_SESSION_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.artifact.isolation.enabled": "false",
}

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java only moves blobs, and the second compiler would use the cores that Python needs."""


def check_settings(config: StreamsConfig, *, is_local: bool) -> None:
    """Raise `ConfigError` if an application cannot run with its settings of Spark.

    A log that ``is_local`` needs all workers on this machine.
    """
    problems = []
    if is_local and not is_on_this_machine(config):
        problems.append(
            "The embedded log is a file on this machine, which the workers of the Spark master "
            f"{master_of(config)!r} may not reach. Set `bootstrap_servers` to use Kafka, or let "
            "`spark.master` be like 'local[4]'."
        )
    name = "spark.sql.shuffle.partitions"
    partitions = config.spark.get(name, "1")
    if not re.fullmatch("[1-9][0-9]*", partitions):
        problems.append(f"`{name}` is {partitions!r}. Give a whole number, 1 or more.")
    if problems:
        raise ConfigError(problems)


def open_session(config: StreamsConfig, log_file: Path) -> Any:
    """Return a session of its own for one application; the first one starts Java.

    Raises:
        StreamsError: Java is missing or too old, or Spark does not start.
        ConfigError: A Spark setting cannot be used.
    """
    given = dict(config.spark)
    java = None if SparkSession.getActiveSession() else find_java().version
    master = master_of(config)
    builder = SparkSession.builder.appName(config.require_application_id()).master(master)
    settings = dict(SETTINGS)
    environment = {"PYSPARK_PYTHON": lambda: sys.executable}
    if is_on_this_machine(config):
        environment = {"PYSPARK_PYTHON": python_launcher, "SPARK_LOCAL_IP": lambda: "127.0.0.1"}
        settings |= _SESSION_SETTINGS | _socket_settings()
        if java is not None and "spark.driver.extraJavaOptions" not in given:
            settings["spark.driver.extraJavaOptions"] = _java_options(java, log_file)
    for name, value in (settings | given).items():
        builder = builder.config(name, value)
    with _one_at_a_time, _quiet(log_file), _unless_set(environment):
        roll_over(log_file)
        session = _started(builder, SETTINGS | given, master, log_file)
        # If Java ends, this server would print a traceback; the application reports the end.
        for server in _ACCUMULATOR_SERVERS:
            server.handle_error = _ignore_error
        if not _java_logs:
            _java_logs.append(log_file)
            keep_rolling(log_file)
        return session


def _ignore_error(_server: object, _request: object, _client: object) -> None:
    _log.debug("The connection from Java has ended.", exc_info=True)


def _socket_settings() -> dict[str, str]:
    """Return the settings of Unix domain sockets between Java and Python, which open no port."""
    directory = socket_directory()
    if directory is None:
        return {}
    name = "spark.python.unix.domain.socket"
    return {f"{name}.enabled": "true", f"{name}.dir": directory}


def restore_local_folders(session: Any) -> None:
    """Recreate the temporary folders of Spark and of its Python processes if they are gone.

    Spark's block manager creates its folders once, so without them no shuffle succeeds again in
    this Java. A new query creates the folders of its state itself.
    """
    context = session.sparkContext
    roots = _block_folders(session._jvm)  # noqa: SLF001  # PySpark has no other way to Java
    gone = [root for root in roots if not root.exists()]
    count = int(context.getConf().get("spark.diskStore.subDirectories", "64"))
    blocks = [root / f"{number:02x}" for root in roots for number in range(count)]
    for folder in (*roots, *blocks, Path(context._temp_dir)):  # noqa: SLF001
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    gone += restore_python_folders()
    if gone:
        _log.warning(
            "Temporary folders were deleted under a running application. Headrace recreated them: "
            "%s. Exclude them from the cleaner of temporary files, or set `spark.local.dir`.",
            ", ".join(map(str, gone)),
        )


def _block_folders(jvm: Any) -> list[Path]:
    """Return the folders of the block manager in this Java.

    Method handles find one method each. Py4J's own calls list all methods of a class, and Java
    cannot load a type that one of `SparkEnv` names.
    """
    java = jvm.java.lang
    lookup = java.invoke.MethodHandles.publicLookup()
    environment, manager, disk, texts = (
        java.Class.forName(name)
        for name in (
            "org.apache.spark.SparkEnv",
            "org.apache.spark.storage.BlockManager",
            "org.apache.spark.storage.DiskBlockManager",
            "[Ljava.lang.String;",
        )
    )
    type_of = java.invoke.MethodType.methodType
    target = lookup.findStatic(environment, "get", type_of(environment)).invokeWithArguments([])
    for class_, method, result in (
        (environment, "blockManager", manager),
        (manager, "diskBlockManager", disk),
        (disk, "localDirsString", texts),
    ):
        handle = lookup.findVirtual(class_, method, type_of(result))
        target = handle.invokeWithArguments([target])
    return [Path(text) for text in target]


def end_java(seconds: float) -> bool:
    """End the Java that this process has started; return whether it has ended in time."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001  # PySpark has no other way to it
    SparkSession.builder.getOrCreate().stop()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(seconds)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        return False
    return True


def java_has_ended(seconds: float = 1.0) -> bool:
    """Return whether the Java that this process started has ended, or ends within ``seconds``."""
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001  # PySpark has no other way
    if process is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None


def log_of_java(own: Path) -> Path:
    """Return the path of Spark's log: that of the application which started Java, or ``own``."""
    return next(iter(_java_logs), own)


def _started(builder: Any, settings: Mapping[str, str], master: str, log_file: Path) -> Any:
    """Return a session with its own settings, or raise the reason why Spark does not start."""
    size = log_file.stat().st_size
    try:
        session = builder.getOrCreate().newSession()
        for name, value in settings.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
    except IllegalArgumentException as error:
        msg = f"Spark does not take a setting: {reason_of(error)}. Correct it in `spark`."
        raise ConfigError(msg) from error
    except Exception as error:
        has_ended = isinstance(error, _JAVA_ENDED) or "stopped SparkContext" in str(error)
        reason = (has_ended and jvm_exit_reason(read_since(log_file, size))) or reason_of(error)
        msg = (
            f"Spark does not start on master {master!r}: {reason}. Correct `spark.master` or the "
            f"other `spark` settings. The log is {str(log_file)!r}."
        )
        raise StreamsError(msg) from error
    _check_effective_settings(session)
    return session


def _check_effective_settings(session: Any) -> None:
    """Raise `ConfigError` if a setting of any origin breaks exactly once or the state."""
    problems = [
        f"Spark has {problem}. Remove it from `spark-defaults.conf`, or from the program that "
        "started Spark."
        for problem in spark_problems(session.conf.getAll)
    ]
    if problems:
        raise ConfigError(problems)


@contextmanager
def _unless_set(values: Mapping[str, Callable[[], str]]) -> Iterator[None]:
    """Set variables that are not set, while Java starts.

    Not longer: another program that this process starts would use the Python of this one.
    """
    missing = {name: value() for name, value in values.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]


@contextmanager
def _quiet(log_file: Path) -> Iterator[None]:
    """Redirect the output of a Java that starts meanwhile, and of its workers, to the log."""
    target = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    starting: Any = java_gateway  # PySpark starts Java with this module's `Popen`
    original = starting.Popen
    starting.Popen = partial(_start_java, stdout=target, stderr=target)
    try:
        yield
    finally:
        starting.Popen = original
        os.close(target)


def _start_java(
    command: Sequence[str], *, preexec_fn: Callable[[], None] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a process that runs none of this one's signal handlers before it is Java.

    PySpark passes a function that a fork of this process calls. Ctrl-C reaches the fork too: it
    would close the application, and print that, before its output is the log.

    Java leads a process group of its own. `timeout` or a shell may signal the group of the driver.
    The driver then finishes the running batch, and needs Java for it.
    """
    if preexec_fn is None:  # there are no copies on Windows
        return subprocess.Popen(command, **options)  # noqa: S603  # what PySpark asks for
    let_through = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    def prepare() -> None:
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        preexec_fn()
        signal.pthread_sigmask(signal.SIG_SETMASK, let_through)

    try:
        return subprocess.Popen(  # noqa: S603
            command, preexec_fn=prepare, process_group=0, **options
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, let_through)


def _java_options(java: str, log_file: Path) -> str:
    archive = archive_options(cds_archive(java))
    if not archive:
        _log.info(WITHOUT_ARCHIVE)
    return f"{JAVA_OPTIONS} {_logging_options(log_file)} {archive}".rstrip()


def _logging_options(log_file: Path) -> str:
    """Return the options that send Spark's log to a file."""
    settings = log_file.with_name("log4j2.properties")
    settings.write_text(_LOGGING.format(path=str(log_file).replace("\\", "/")))
    return f"-Dlog4j2.configurationFile={settings.as_uri()}"


_LOGGING = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
# Logs a warning for each key without a value.
logger.state.name = org.apache.spark.sql.execution.python.streaming
logger.state.level = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""
