"""Logs on the driver what the user's functions print and log in workers."""

from __future__ import annotations

import logging
import os
import select
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from headrace.control_characters import escape_controls
from headrace.spark.processes.worker_output import (
    BEGINS,
    ENDS,
    HEADER,
    LEVELS,
    PIPE,
    PRINTED,
    WorkerLine,
)

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover  # Windows has no such pipes
    fcntl = None  # type: ignore[assignment]

_PIPE_BYTES = 1 << 20
_END_SECONDS = 5.0
_NOT_SENT = ("py4j", "pyspark")


def follow_output(run_directory: Path) -> FollowedOutput | None:
    """Log what the workers of a run print and log, until `FollowedOutput.close`.

    None on a system without named pipes: there, Spark's log alone has it.
    """
    if not hasattr(os, "mkfifo"):
        return None
    return FollowedOutput(run_directory)


class FollowedOutput:
    """The pipe of a run, and the thread that reads it."""

    def __init__(self, run_directory: Path) -> None:
        self.dropped = 0
        """How many lines workers have dropped because this process logs too slowly."""
        levels = run_directory / LEVELS
        levels.write_bytes(msgspec.json.encode(_levels()))
        path = run_directory / PIPE
        os.mkfifo(path, 0o600)
        # Open for writing, too: so the pipe has no end when a worker closes its own.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        if fcntl is not None:
            with suppress(OSError, AttributeError):  # a system may allow less, or know no sizes
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name="headrace-output", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Log the lines that have come, and stop. A second call does nothing."""
        if self._closing:
            return
        self._closing = True
        with suppress(BlockingIOError):  # a full pipe has woken the thread
            os.write(self._pipe, HEADER.pack(0, 0, 0))
        self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():  # a handler of the user may hang
            os.close(self._pipe)

    def _follow(self) -> None:
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        chunks: dict[int, bytes] = {}
        data = b""
        while True:
            is_last = self._closing  # read before the pipe, which has all lines by then
            try:
                data += os.read(self._pipe, _PIPE_BYTES)
            except BlockingIOError:
                if is_last:
                    return
                poll.poll()
                continue
            data = self._take(data, chunks)

    def _take(self, data: bytes, chunks: dict[int, bytes]) -> bytes:
        """Log the lines that are whole, and return the beginning of the next chunk."""
        at = 0
        while len(data) - at >= HEADER.size:
            process, size, flags = HEADER.unpack_from(data, at)
            end = at + HEADER.size + size
            if end > len(data):
                break
            chunk, at = data[at + HEADER.size : end], end
            chunks[process] = chunk if flags & BEGINS else chunks.get(process, b"") + chunk
            if flags & ENDS:
                self._log(chunks.pop(process))
        return data[at:]

    def _log(self, data: bytes) -> None:
        try:
            line = msgspec.json.decode(data, type=WorkerLine)
        except msgspec.MsgspecError:  # a process wrote to the pipe that is no worker
            self._count_dropped(1)
            return
        if line.dropped:
            self._count_dropped(line.dropped)
        if line.logger == PRINTED and line.level == logging.WARNING:
            return  # it only brought the count
        logger = logging.getLogger(line.logger)
        if logger.isEnabledFor(line.level):
            logger.handle(record_of(line))

    def _count_dropped(self, lines: int) -> None:
        self.dropped += lines
        logging.getLogger(PRINTED).warning(
            "Workers printed or logged %d lines faster than this process logs them; they are "
            "missing here. Spark's log has the printed ones.",
            lines,
        )


def record_of(line: WorkerLine) -> logging.LogRecord:
    """Return the log record of a line, without control characters."""
    values = {
        "name": line.logger,
        "levelno": line.level,
        "levelname": logging.getLevelName(line.level),
        "msg": escape_controls(line.text),
        "pathname": line.path,
        "filename": Path(line.path).name,
        "module": Path(line.path).stem,
        "lineno": line.line,
        "funcName": line.function,
        "created": line.created,
        "msecs": line.created % 1 * 1000,
        "processName": "Worker",
    }
    if line.trace:
        values["exc_text"] = escape_controls(line.trace, keep="\n\t")
    return logging.makeLogRecord(values)


def _levels() -> dict[str, int]:
    """Return the levels that the program has set, by the names of its loggers."""
    named = {
        name: logger.level
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger)
        and logger.level != logging.NOTSET
        and name.partition(".")[0] not in _NOT_SENT
    }
    return {"": logging.root.level, **named}
