"""Raise errors that no record is at fault for, so that no handler drops a record for them."""

from __future__ import annotations

import gzip
import traceback

from headrace.engine.error_text import describe_error
from headrace.errors import StreamsError
from headrace.serdes.base import Serde


def raise_unless_of_record(error: Exception, task: str) -> None:
    """Raise an error if the program, the machine or another system is at fault.

    A serde computes, so an ``OSError`` in one comes from a system that it asks. A function of the
    user may open what a record names, so its ``OSError`` may be the record's fault.

    Args:
        error: The error.
        task: What could not be done: "read the key of …".

    Raises:
        StreamsError: No record is at fault. It is the error itself, or has it as its cause.
        MemoryError: There is no memory left.
    """
    if isinstance(error, MemoryError) or is_of_no_record(error):
        raise error
    if isinstance(error, ImportError) or (_is_of_a_system(error) and _is_of_a_serde(error)):
        msg = (
            f"Headrace could not {task}: {describe_error(error)}. "
            "No handler leaves the record out, because the record is not at fault."
        )
        raise StreamsError(msg) from error


def is_of_no_record(error: BaseException) -> bool:
    """Return whether an error is one of Headrace that no record is at fault for."""
    return isinstance(error, StreamsError) and not error.is_of_record


def _is_of_a_system(error: Exception) -> bool:
    """Return whether the operating system, or another system, raised an error."""
    # `bz2` and `gzip` raise these for damaged data.
    is_of_data = isinstance(error, gzip.BadGzipFile) or (type(error) is OSError and not error.errno)
    return isinstance(error, OSError) and not is_of_data


def _is_of_a_serde(error: Exception) -> bool:
    """Return whether a serde raised an error, or called the function that did."""
    return any(
        frame.f_code.co_name in ("serialize", "deserialize")
        and isinstance(frame.f_locals.get("self"), Serde)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )
