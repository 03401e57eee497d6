from __future__ import annotations

from base64 import urlsafe_b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queries.coordination.answers import EventId, parse_event_id
from headrace.queries.coordination.cursors import Cursor, decode_cursor, encode_cursor
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import FetchWindows, GetKey, Operation, ScanKeys
from headrace.queries.tokens import Token

OPERATIONS = [
    GetKey(b"a"),
    ScanKeys(start=b"\x00", end=b"\xff", descending=True),
    FetchWindows(key=b"k", time_to=5),
]
TOKEN = Token("3f9a1c07", 812)


@given(st.sampled_from(OPERATIONS), st.integers(0, 2**31), st.binary(max_size=600))
def test_a_cursor_comes_back_as_it_was(
    operation: Operation, partition: int, position: bytes
) -> None:
    cursor = Cursor(str(TOKEN), "counts", operation, partition, position)

    assert decode_cursor(encode_cursor(cursor)) == cursor


def _packed(*fields: object) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(fields)).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "é",
        "no cursor",
        "A" * 20_000,
        encode_cursor(Cursor(str(TOKEN), "counts", GetKey(b"a"), 0, b""))[:-4],
        _packed("no token", "counts", GetKey(b"a"), 0, b""),
        _packed(str(TOKEN), "counts", {"type": "unknown"}, 0, b""),
        _packed(str(TOKEN), "counts", GetKey(b"a"), -1, b""),
        _packed(str(TOKEN), 7, GetKey(b"a"), 0, b""),
    ],
)
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(QueryProblemError, match="cursor cannot be read") as caught:
        decode_cursor(text)

    assert caught.value.code is ProblemCode.BAD_REQUEST


@given(st.integers(0, 2**20), st.binary(max_size=600))
def test_an_event_id_comes_back_as_it_was(partition: int, place: bytes) -> None:
    event_id = EventId(TOKEN, partition, place)

    assert parse_event_id(str(event_id)) == event_id
    assert parse_event_id(str(EventId(TOKEN))) == EventId(TOKEN)


@pytest.mark.parametrize(
    "text", ["", "812", "3f9a1c07.812:", "3f9a1c07.812:-1:", "3f9a1c07.812:1:é", "a.1:1:1:1"]
)
def test_a_text_that_is_no_event_id_is_refused(text: str) -> None:
    with pytest.raises(QueryProblemError, match="no event id") as caught:
        parse_event_id(text)

    assert caught.value.code is ProblemCode.BAD_REQUEST
