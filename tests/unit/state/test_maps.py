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


def pairs(*keys: tuple[bytes, int]) -> MemoryMap[tuple[bytes, int], int]:
    entries: MemoryMap[tuple[bytes, int], int] = MemoryMap()
    for key in keys:
        entries.put(key, key[1])
    return entries


def test_keys_of_two_parts_are_scanned_as_whole_keys() -> None:
    entries = pairs((b"b", 2), (b"a", 3), (b"a", 1), (b"b", 1))

    one_key = [key for key, _ in entries.scan((b"a", 0), (b"a", 9))]
    backwards = [key for key, _ in entries.scan((b"a", 2), (b"a", 9), reverse=True)]
    both_keys = [key for key, _ in entries.scan((b"a", 2), (b"b", 2))]

    assert one_key == [(b"a", 1), (b"a", 3)]
    assert backwards == [(b"a", 3)]
    assert both_keys == [(b"a", 3), (b"b", 1)]
    assert list(entries.scan((b"x", 0), (b"x", 9))) == []


def test_the_next_scan_of_a_key_sees_puts_and_removals_in_between() -> None:
    entries = pairs((b"a", 1), (b"a", 5))
    list(entries.scan((b"a", 0), (b"a", 9)))

    for key in ((b"a", 3), (b"a", 7), (b"b", 1)):
        entries.put(key, key[1])
    entries.pop((b"a", 1))
    entries.pop((b"b", 1))

    assert [key for key, _ in entries.scan((b"a", 0), (b"a", 9))] == [
        (b"a", 3),
        (b"a", 5),
        (b"a", 7),
    ]
    assert list(entries.scan((b"b", 0), (b"b", 9))) == []


def test_the_ends_of_the_range_of_one_key() -> None:
    entries = pairs((b"a", 1), (b"a", 5), (b"b", 3))

    assert entries.first((b"a", 2), (b"a", 9)) == ((b"a", 5), 5)
    assert entries.last((b"a", 0), (b"a", 5)) == ((b"a", 1), 1)
    assert entries.first((b"a", 6), (b"a", 9)) is None
    assert entries.last((b"a", 0), (b"a", 1)) is None
    assert entries.last((b"x", 0), (b"x", 1)) is None


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
