"""The ordered maps in memory."""

from __future__ import annotations

from headrace.state.maps import MemoryMap, MemorySegments


def filled() -> MemoryMap[bytes, int]:
    entries: MemoryMap[bytes, int] = MemoryMap()
    for key, value in ((b"c", 3), (b"a", 1), (b"b", 2)):
        entries.put(key, value)
    return entries


def test_a_map_holds_the_last_value_of_a_key() -> None:
    entries = filled()

    entries.put(b"a", 9)

    assert (entries.get(b"a"), entries.get(b"x"), len(entries)) == (9, None, 3)


def test_a_scan_is_in_key_order_from_start_to_before_end() -> None:
    entries = filled()

    assert list(entries.scan()) == [(b"a", 1), (b"b", 2), (b"c", 3)]
    assert list(entries.scan(b"b")) == [(b"b", 2), (b"c", 3)]
    assert list(entries.scan(b"a", b"c")) == [(b"a", 1), (b"b", 2)]
    assert list(entries.scan(None, b"c", reverse=True)) == [(b"b", 2), (b"a", 1)]


def test_a_scan_sees_what_was_put_and_removed_since_the_last_one() -> None:
    entries = filled()
    list(entries.scan())

    entries.put(b"aa", 4)
    entries.put(b"aa", 5)
    removed = entries.pop(b"b"), entries.pop(b"x")

    assert removed == (2, None)
    assert list(entries.scan()) == [(b"a", 1), (b"aa", 5), (b"c", 3)]


def test_a_scan_shows_what_was_there_when_it_began() -> None:
    entries = filled()
    scan = entries.scan()

    entries.pop(b"b")

    assert [key for key, _ in scan] == [b"a", b"b", b"c"]


def test_the_ends_of_a_range_are_found_without_a_scan() -> None:
    entries = filled()

    assert entries.first(b"aa", b"c") == (b"b", 2)
    assert entries.last(b"a", b"c") == (b"b", 2)
    assert (entries.first(b"x", b"y"), entries.last(b"x", b"y")) == (None, None)


def test_segments_are_made_when_they_are_written() -> None:
    segments: MemorySegments[bytes, int] = MemorySegments()

    segments.segment(7).put(b"a", 1)
    segments.segment(7).put(b"b", 2)
    segments.segment(3).put(b"a", 3)

    assert segments.numbers() == [3, 7]
    assert segments.existing(5) is None
    assert len(segments.segment(7)) == 2


def test_old_segments_are_dropped_whole() -> None:
    segments: MemorySegments[bytes, int] = MemorySegments()
    for number in (1, 2, 3):
        segments.segment(number).put(b"a", number)

    segments.drop_before(3)

    assert segments.numbers() == [3]
