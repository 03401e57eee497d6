"""Sends what the user's functions print and log in a worker to the driver.

A named pipe in the run folder carries it. A worker never waits for the driver: if the pipe is full,
it drops the line and counts it, and the next line that fits brings the count. Functions that
neither print nor log cost nothing. Spark's log has the printed lines, too.
"""

from __future__ import annotations

import io
import logging
import os
import select
import struct
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import msgspec

PIPE = "worker-output"
"""The name of the pipe in the run folder."""
LEVELS = "worker-log-levels"
"""The name of the file with the levels of the driver's loggers, in the run folder."""
PRINTED = "headrace.user"
"""The logger of the driver that gets what functions print."""
HEADER = struct.Struct("!IHB")
"""Before each chunk of a line: process, size, and whether the chunk begins and ends it."""
BEGINS, ENDS = 1, 2
CHUNK_BYTES = select.PIPE_BUF - HEADER.size if hasattr(select, "PIPE_BUF") else 505
"""The size of a chunk: the system never mixes writes of up to `PIPE_BUF` with those of others."""
LINE_CHARACTERS = 32_000
"""The length of the longest line that is sent whole."""
_LAST_TRY_MS = 200
_OWN = ("headrace", "py4j", "pyspark")
_OF_APPLICATION = "headrace"
"""The logger of Headrace about the application; the loggers of its modules are about records."""
_EXAMPLES = "headrace.examples."


class WorkerLine(msgspec.Struct, frozen=True, array_like=True):
    """A line that a function printed or logged in a worker."""

    logger: str
    level: int
    text: str
    created: float
    path: str = ""
    line: int = 0
    function: str = ""
    trace: str = ""
    dropped: int = 0
    """How many lines the worker dropped before this one."""


def forward_output(run_directory: str) -> None:
    """Send what functions print and log, and Headrace's warnings, to the driver of a run.

    A worker serves one application after the other, so it calls this at the start of each task.
    """
    if _output.run_directory != run_directory:
        _output.lead_to(run_directory)


def report_dropped() -> None:
    """Send the count of dropped lines if there are some; call it at the end of a task."""
    _output.report_dropped()


class WorkerOutput:
    """The end of the pipe in this process. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self.run_directory = ""
        self.dropped = 0
        self._lock = threading.RLock()
        self._pipe: int | None = None
        self._own_levels: dict[str, int] = {}
        """The levels of the loggers whose levels the driver has set, from before it set them."""
        self.handler = _Handler(self)
        """Sends the records of the root logger."""

    def lead_to(self, run_directory: str) -> None:
        """Send to the driver of a run; to none if this machine has no such pipe."""
        with self._lock:
            self.run_directory = run_directory
            self.dropped = 0
            self.close()
            folder = Path(run_directory)
            try:
                levels = msgspec.json.decode((folder / LEVELS).read_bytes(), type=dict[str, int])
                self._pipe = os.open(folder / PIPE, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # the driver is elsewhere, has ended, or has no such pipes
                return
            if self.handler not in logging.root.handlers:
                logging.root.addHandler(self.handler)
            self._take_levels(levels)
            if not isinstance(sys.stdout, PrintedLines):
                sys.stdout = PrintedLines(sys.stdout, self)

    def _take_levels(self, levels: dict[str, int]) -> None:
        """Set the levels of a driver; those of the driver before it are no longer in force."""
        for name, level in self._own_levels.items():
            logging.getLogger(name or None).setLevel(level)
        self._own_levels = {name: logging.getLogger(name or None).level for name in levels}
        for name, level in levels.items():
            logging.getLogger(name or None).setLevel(level)

    def close(self) -> None:
        with self._lock:
            if self._pipe is not None:
                os.close(self._pipe)
                self._pipe = None

    def send(self, line: WorkerLine) -> bool:
        """Send a line, or count it as dropped; return whether it was sent."""
        with self._lock:
            if self._pipe is None:
                return False
            if self.dropped:
                line = msgspec.structs.replace(line, dropped=self.dropped)
            data = msgspec.json.encode(line)
            try:
                for begin in range(0, len(data), CHUNK_BYTES):
                    chunk = data[begin : begin + CHUNK_BYTES]
                    flags = BEGINS * (begin == 0) + ENDS * (begin + len(chunk) == len(data))
                    os.write(self._pipe, HEADER.pack(os.getpid(), len(chunk), flags) + chunk)
            except BlockingIOError:
                self.dropped += 1
                return False
            except OSError:  # the driver is gone
                self.close()
                return False
            self.dropped = 0
            return True

    def report_dropped(self) -> None:
        """Send the count of dropped lines, and wait a little for room if there are some."""
        if not self.dropped:
            return
        with self._lock:
            if self._pipe is not None:
                poll = select.poll()
                poll.register(self._pipe, select.POLLOUT)
                poll.poll(_LAST_TRY_MS)
                before = self.dropped
                if not self.send(WorkerLine(PRINTED, logging.WARNING, "", time.time())):
                    self.dropped = before  # the report itself is no line of the user


class _Handler(logging.Handler):
    """Sends the records of the user's loggers, and Headrace's warnings about the application.

    Headrace's other records stay in Spark's log: there may be one for each input record.
    """

    def __init__(self, output: WorkerOutput) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        last_resort = logging.lastResort
        if (
            last_resort is not None
            and record.levelno >= last_resort.level
            and logging.root.handlers == [self]
        ):
            last_resort.handle(record)  # as without this handler
        if not _is_for_the_driver(record):
            return
        try:
            self._output.send(line_of(record))
        except Exception:  # of the arguments of the record, as in every handler
            self.handleError(record)


def _is_for_the_driver(record: logging.LogRecord) -> bool:
    if record.name == _OF_APPLICATION:
        return record.levelno >= logging.WARNING
    is_own = record.name.partition(".")[0] in _OWN
    return not is_own or record.name.startswith(_EXAMPLES)


def line_of(record: logging.LogRecord) -> WorkerLine:
    """Return a log record as a line; one that is too long is cut, and says so."""
    trace = record.exc_text or ""
    if record.exc_info and not trace:
        trace = "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return WorkerLine(
        record.name,
        record.levelno,
        shortened(record.getMessage()),
        record.created,
        record.pathname,
        record.lineno,
        record.funcName or "",
        shortened(trace),
    )


def shortened(text: str) -> str:
    """Return a text, or its beginning and how much is missing."""
    text = text.encode(errors="backslashreplace").decode()  # JSON has no half pairs
    if len(text) <= LINE_CHARACTERS:
        return text
    return f"{text[:LINE_CHARACTERS]} … ({len(text) - LINE_CHARACTERS} more characters)"


class PrintedLines(io.TextIOBase):
    """Standard output of a worker: passes everything on, and sends whole lines to the driver."""

    def __init__(self, out: TextIO, output: WorkerOutput) -> None:
        self._out = out
        self._output = output
        self._begun = ""
        self._lock = threading.Lock()

    def write(self, text: str, /) -> int:
        with suppress(OSError, ValueError):  # Java may have ended
            self._out.write(text)
        with self._lock:
            *lines, rest = (self._begun + text).split("\n")
            if len(rest) > LINE_CHARACTERS:
                lines, rest = [*lines, rest], ""
            self._begun = rest
        for line in lines:
            self._output.send(WorkerLine(PRINTED, logging.INFO, shortened(line), time.time()))
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._out.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._out.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # of the stream below
        return self._out.encoding

    @property
    def buffer(self) -> Any:
        """The bytes below, which are not sent."""
        return self._out.buffer


_output = WorkerOutput()
