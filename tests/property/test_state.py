"""Ordered maps and versioned stores against models that are too simple to be wrong."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.serdes import Serdes
from headrace.state.maps import MemoryMap, MemorySegments
from headrace.state.store_times import EntryTimes
from headrace.state.versioned import NOT_PUT, Versioned

KEYS = st.tuples(st.sampled_from([b"a", b"b", b"ab"]), st.integers(0, 6))
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 9))), max_size=30)


@given(before=CHANGES, after=CHANGES, start=KEYS, end=KEYS)
def test_a_map_reads_as_a_sorted_dict_does(
    before: list[Any], after: list[Any], start: Any, end: Any
) -> None:
    entries: MemoryMap[Any, int] = MemoryMap()
    model: dict[Any, int] = {}
    for changes in (before, after):
        for key, value in changes:
            if value is None:
                assert entries.pop(key) == model.pop(key, None)
            else:
                entries.put(key, value)
                model[key] = value
        expected = sorted(item for item in model.items() if start <= item[0] < end)

        assert list(entries.scan(start, end)) == expected
        assert list(entries.scan(start, end, reverse=True)) == expected[::-1]
        assert entries.first(start, end) == (expected[0] if expected else None)
        assert entries.last(start, end) == (expected[-1] if expected else None)
        assert list(entries.scan()) == sorted(model.items())


@given(
    puts=st.lists(
        st.tuples(
            st.sampled_from("kj"), st.one_of(st.none(), st.integers(0, 99)), st.integers(0, 60)
        ),
        max_size=25,
    ),
    scale=st.sampled_from([1, 500]),
    retention=st.sampled_from([0, 5, 20, 100]),
)
def test_a_versioned_store_knows_what_was_valid_when(
    puts: list[tuple[str, int | None, int]], scale: int, retention: int
) -> None:
    history: MemorySegments[Any, Any] = MemorySegments()
    store = Versioned(
        "s",
        Serdes.string(),
        Serdes.long(),
        MemoryMap(),
        history,
        EntryTimes(),
        retention_ms=retention * scale,
        refused=lambda: None,
    )
    model: dict[str, dict[int, int | None]] = {"k": {}, "j": {}}
    now = -1
    for key, value, unscaled in puts:
        time, versions = unscaled * scale, model[key]
        # Deleting the latest version at its own time forgets more than that version.
        assume(value is not None or versions.get(time) is None)
        code = store.put(key, value, time)
        if time < now - retention * scale:
            assert code == NOT_PUT
            continue
        now = max(now, time)
        versions[time] = value
        assert code == min((other for other in versions if other > time), default=-1)

    for key, versions in model.items():
        latest = max(versions, default=None)
        for as_of in range(0, 62 * scale, max(1, scale // 2)):
            valid = max((time for time in versions if time <= as_of), default=None)
            kept = as_of >= now - retention * scale or valid == latest
            expected = None if valid is None or not kept else versions[valid]
            found = store.get(key, as_of)
            assert (None if found is None else found.value) == expected
