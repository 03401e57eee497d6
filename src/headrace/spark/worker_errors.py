"""Bring errors from Spark's workers to the driver, with the user's exception and no JVM stack."""

from __future__ import annotations

import base64
import binascii
import builtins
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, FunctionType, TracebackType
from typing import cast

import msgspec

from headrace import errors
from headrace.control_characters import escape_controls
from headrace.errors import CheckpointError, RecordError, StreamsError, message_of

_BEGIN, _END = "[[headrace-error:", "]]"
_SHIPPED = re.compile(re.escape(_BEGIN) + "([A-Za-z0-9+/=]+)" + re.escape(_END))
_SAYS_WHY = re.compile(r"[\w.]+(Error|Exception|Exit|Interrupt)\b")
_THROWN = re.compile(r'(?:Exception in thread "[^"]*" )?([\w.$]+(?:Error|Exception): .*)')
_KILLED = re.compile(r"has been killed\. Reason: (.*)")
"""Spark logs this when a master does not answer, or rejects the application."""
_BESIDE_THE_POINT = ("WARNING: ", "Picked up ", "Using Spark's ", "Error: ")
"""How lines of Java begin that do not show why it ended."""
_NO_CAUSE = "(no cause message)"
_DIED = re.compile(
    r"java\.io\.EOFException|java\.net\.SocketException"
    r"|(java\.io\.IOException: )?(Broken pipe|Connection reset)"
)
"""Spark reports these when a Python process has died; the last ones come from Unix sockets."""
_FULL = re.compile("No space left on device|File too large|Disk quota exceeded")
_NOT_LOADED = "[CANNOT_LOAD_STATE_STORE"
_DAMAGED = re.compile("(?i)checksum|cannot_read_|EOFException")
_STATE_FILE = re.compile(r"(?:file:)?(\S+/state/\d+/\S+)")
_PACKAGE = str(Path(__file__).parents[1])
_LIBRARY = sysconfig.get_paths()["stdlib"]


class _ShippedCause(msgspec.Struct):
    """The exception of the user's code."""

    module: str
    name: str
    message: str
    frames: list[tuple[str, int, str]]
    """File, line and function of each frame of the user's code, the outermost first."""


class _Shipped(msgspec.Struct):
    kind: str
    message: str
    node: str | None = None
    topic: str | None = None
    partition: int = -1
    offset: int = -1
    text: str = ""
    """The frames of the user's code and its exception, as Python prints them."""
    cause: _ShippedCause | None = None
    notes: tuple[str, ...] = ()


class WorkerFailure(Exception):  # noqa: N818  # carries an error, is none of ours
    """An error on its way through Spark, which only keeps its text."""

    def __init__(self, error: BaseException) -> None:
        message = _utf8(str(error))
        shipped = _Shipped(type(error).__name__, message)
        origin = error.__cause__ or error
        if frames := _user_frames(origin):
            raised = "".join(traceback.format_exception_only(origin))
            lines = [*traceback.format_list(frames), escape_controls(raised, keep="\n\t")]
            shipped.text = _utf8("".join(lines).rstrip())
            if error.__cause__ is not None:
                shipped.cause = _shipped_cause(error.__cause__, frames)
        shipped.notes = tuple(map(_utf8, getattr(error, "__notes__", ())))
        if isinstance(error, RecordError):
            shipped.node, shipped.topic = error.node, error.topic
            shipped.partition, shipped.offset = error.partition, error.offset
        packed = base64.b64encode(msgspec.json.encode(shipped)).decode()
        super().__init__(f"{message} {_BEGIN}{packed}{_END}")


@contextmanager
def errors_to_driver() -> Iterator[None]:
    """Wrap errors of ours, so that `error_from` finds them in the text of Spark's exception."""
    try:
        yield
    except StreamsError as error:
        raise WorkerFailure(error) from error


def _utf8(text: str) -> str:
    # A message may quote half a surrogate pair of a record, which UTF-8 cannot encode.
    return text.encode(errors="backslashreplace").decode()


def _user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an error outside of Headrace; none if all are of Python's library."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_PACKAGE)
    ]
    return [] if all(_is_library(frame.filename) for frame in frames) else frames


def _shipped_cause(error: BaseException, frames: Iterable[traceback.FrameSummary]) -> _ShippedCause:
    class_, message = type(error), _utf8(message_of(error))
    frame_facts = [(_utf8(frame.filename), frame.lineno or 1, frame.name) for frame in frames]
    return _ShippedCause(class_.__module__, class_.__qualname__, message, frame_facts)


def _is_library(filename: str) -> bool:
    return filename.startswith(_LIBRARY) and "site-packages" not in filename


def error_from(text: str) -> StreamsError | None:
    """Return the error that a worker raised, from the text of Spark's exception, or None."""
    # The message comes before the packed error, and may quote anything. So the last one counts.
    for packed in reversed(_SHIPPED.findall(text)):
        try:
            shipped = msgspec.json.decode(base64.b64decode(packed), type=_Shipped)
        except (binascii.Error, msgspec.DecodeError):
            continue
        return _made_from(shipped)
    return None


def text_of(error: BaseException) -> str:
    """Return the text of an error of Spark, and of its causes."""
    return "\n".join(_texts(error))


def _texts(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        error = getattr(error, "_cause", None)  # PySpark's, of an error in Java


def reason_of(error: BaseException) -> str:
    """Return the most specific line of Spark's exception, or of its cause, without a full stop."""
    for text in _texts(error):
        lines = [line.strip(": ") for line in text.splitlines() if line.strip()]
        telling = [line for line in lines if _SAYS_WHY.match(line)]
        with_words = [line for line in telling if not _SAYS_WHY.fullmatch(line)]
        reason = next(iter(with_words or telling or lines), _NO_CAUSE)
        if _DIED.match(reason):
            return f"a Python process died, killed or out of memory ({reason.rstrip('.')})"
        if _NO_CAUSE not in reason:
            return reason.rstrip(".")
    return "no reason given"


def jvm_exit_reason(text: str) -> str:
    """Return why Spark ended by itself, in a line without a full stop, or nothing.

    That is its own reason, the first exception, or Java's complaint about its options.
    """
    if killed := _KILLED.search(text):
        return killed[1].rstrip(".")
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    thrown = (_THROWN.match(line) for line in lines)
    first = next((found[1] for found in thrown if found), None)
    messages = [line.strip() for line in lines if not line.startswith(_BESIDE_THE_POINT)]
    return (first or "; ".join(messages[:2])).rstrip(".")


def full_disk_from(text: str, directory: Path) -> CheckpointError | None:
    """Return the error of a full disk if Spark's exception reports one, or None."""
    found = _FULL.search(text)
    return None if found is None else _unwritable(directory, found[0])


def damaged_state_from(text: str, checkpoint: Path, application_id: str) -> CheckpointError | None:
    """Return the error of damaged state if Spark's exception reports it, or None."""
    if _NOT_LOADED not in text or not _DAMAGED.search(text):
        return None
    file = _STATE_FILE.search(text)
    damage = f"{file[1]!r} is missing, or not as it was written" if file else "it cannot be read"
    return CheckpointError(
        f"The state of application {application_id!r} is damaged: {damage}. Restore the newest "
        f"copy of the checkpoint {str(checkpoint)!r}, or start again with `headrace reset "
        f"{application_id}`."
    )


def unwritten_state(error: OSError, directory: Path) -> CheckpointError | None:
    """Return the error of a state folder that cannot be written, or None for other errors."""
    if error.filename is None:  # as when a file that is open takes nothing more
        return full_disk_from(str(error), directory)
    path = Path(str(error.filename))
    if not path.is_relative_to(directory) and not directory.is_relative_to(path):
        return None
    return _unwritable(directory, error.strerror or str(error))


def _unwritable(directory: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"The state in {str(directory)!r} cannot be written: {reason}. Make room there, or give "
        "the application another `state_dir`."
    )


def _made_from(shipped: _Shipped) -> StreamsError:
    kind = getattr(errors, shipped.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, StreamsError)):
        kind = StreamsError
    message = shipped.message
    if kind is StreamsError and shipped.kind != "StreamsError":
        message = f"{shipped.kind}: {message}"
    if shipped.text:
        message = f"{message}\n{shipped.text}"
    made = kind.__new__(kind)  # its own constructor would compose another message
    Exception.__init__(made, message)
    if shipped.cause is not None:
        made.__cause__ = _exception_from(shipped.cause)
    for note in shipped.notes:
        made.add_note(note)
    if isinstance(made, RecordError):
        made.node, made.topic = shipped.node, shipped.topic
        made.partition, made.offset = shipped.partition, shipped.offset
        made.dead_letters = ()
    return made


def _exception_from(shipped: _ShippedCause) -> Exception:
    """Return an exception with the class name, the message and the lines of the user's.

    It is an instance of the user's class if this process has imported it, and an instance can be
    made without arguments. Nothing is imported, and ``__init__`` is not called.
    """
    module = builtins if shipped.module == "builtins" else sys.modules.get(shipped.module)
    base = getattr(module, shipped.name, None)
    if not (isinstance(base, type) and issubclass(base, Exception)):
        base = Exception
    try:
        made = _instance_of(base, shipped)
    except Exception:  # the class is the user's: it may demand arguments, or no subclass
        made = _instance_of(Exception, shipped)
    return made.with_traceback(_traceback_of(shipped.frames))


def _instance_of(base: type[Exception], shipped: _ShippedCause) -> Exception:
    members = {"__module__": shipped.module, "__str__": lambda _self: shipped.message}
    class_ = cast("type[Exception]", type(shipped.name, (base,), members))
    return class_.__new__(class_)


def _own_frame() -> FrameType:
    return sys._getframe()  # noqa: SLF001  # documented; nothing is read from it


def _traceback_of(frames: Iterable[tuple[str, int, str]]) -> TracebackType | None:
    """Return a traceback that shows these files, lines and functions."""
    inner: TracebackType | None = None
    for file, line, function in reversed([*frames]):
        code = _own_frame.__code__.replace(
            co_filename=file, co_name=function, co_qualname=function, co_firstlineno=line
        )
        frame: FrameType = FunctionType(code, {"sys": sys})()
        inner = TracebackType(inner, frame, -1, line)  # -1: no columns
    return inner
