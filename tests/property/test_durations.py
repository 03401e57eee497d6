from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from headrace.durations import MAX_MS, duration_ms, duration_text


@given(st.integers(-MAX_MS, MAX_MS))
def test_the_text_of_a_duration_is_read_as_the_same_duration(length: int) -> None:
    assert duration_ms(duration_text(length), what="grace") == length


@given(st.integers(-(2**53), 2**53))
def test_the_three_ways_to_write_a_duration_agree(length: int) -> None:
    written = (length, timedelta(milliseconds=length), duration_text(length))

    assert {duration_ms(way, what="grace") for way in written} == {length}


@given(st.text(max_size=12) | st.from_regex(r"\A-?([0-9.]{1,4}(d|h|m|s|ms)){0,3}\Z"))
def test_any_text_is_a_duration_or_refused_by_name(text: str) -> None:
    with suppress(ValueError):
        length = duration_ms(text, what="grace")
        assert duration_ms(duration_text(length), what="grace") == length
