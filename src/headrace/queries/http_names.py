"""The names that server and clients share: headers, content types, and the text of offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.brokers.log import TopicPartition
from headrace.queries.problems import ProblemCode, QueryProblemError

SNAPSHOT_HEADER = "Headrace-Snapshot"
"""The token that an answer reflects."""
POSITION_HEADER = "Headrace-Position"
"""For each input the next offset that is not reflected, as JSON; left out if it is long."""
AGE_HEADER = "Headrace-Age"
"""For how many milliseconds the answer may be out of date."""
TIMESTAMP_HEADER = "Headrace-Timestamp"
"""The timestamp of the value of a point read, in milliseconds."""
REQUEST_ID_HEADER = "Headrace-Request-Id"
"""The id of a request, which the log of the instance has too."""

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"
NDJSON_TYPE = "application/x-ndjson"
ARROW_TYPE = "application/vnd.apache.arrow.stream"
EVENTS_TYPE = "text/event-stream"
BYTES_TYPE = "application/octet-stream"

_OFFSET = re.compile(r"([A-Za-z0-9._-]{1,249}):([0-9]{1,9}):([0-9]{1,18})")
_MOST_OFFSETS = 1_000


def text_from_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Return the text of ``min_position``: records that an answer must reflect."""
    return ",".join(
        f"{name.topic}:{name.partition}:{offset}" for name, offset in sorted(offsets.items())
    )


def offsets_from_text(text: str) -> dict[TopicPartition, int]:
    """Return the records of the text of ``min_position``.

    Raises:
        QueryProblemError: The text does not have the form ``topic:partition:offset,…``.
    """
    parts = text.split(",")
    forms = [_OFFSET.fullmatch(part) for part in parts[:_MOST_OFFSETS]]
    if len(parts) > _MOST_OFFSETS or not all(forms):
        msg = (
            "`min_position` is no list of records. "
            f"Give up to {_MOST_OFFSETS} as 'topic:partition:offset', with commas between them."
        )
        raise QueryProblemError(ProblemCode.BAD_REQUEST, msg)
    offsets: dict[TopicPartition, int] = {}
    for form in forms:
        assert form is not None, "checked"
        name = TopicPartition(form[1], int(form[2]))
        offsets[name] = max(offsets.get(name, 0), int(form[3]))
    return offsets
