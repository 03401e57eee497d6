"""Charts of the plays that last long enough, and the fate of bad input."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

from headrace.examples.checking import DriverRun, Fate, fates_of, in_process, on_driver
from headrace.examples.feeding import FeedRecord
from headrace.examples.music.app import app
from headrace.examples.music.feed import SONGS, TOPICS, feed, play, song
from headrace.examples.music.model import PlayEvent


def chart(run: DriverRun, store: str, key: str) -> list[tuple[int, int]]:
    top = run.driver.get_key_value_store(store).get(key)
    return [(each.song_id, each.plays) for each in top.songs]


def plays(song_id: int, times: int) -> list[FeedRecord]:
    return [play(song_id)] * times


def test_only_plays_of_at_least_30_seconds_count() -> None:
    with on_driver(app) as run:
        run.write([*map(song, SONGS), play(1, duration=29_999), play(1, duration=30_000)])

        assert dict(run.driver.get_key_value_store("song-play-count").all()) == {SONGS[0]: 1}
        assert run.driver.get_key_value_store("all-songs").get(1).name == "Chemical Warfare"


def test_there_is_a_chart_for_each_genre_and_one_for_all() -> None:
    with on_driver(app) as run:
        run.write([*map(song, SONGS), *plays(1, 2), *plays(2, 3), *plays(9, 4), *plays(10, 1)])

        assert chart(run, "top-five-songs-by-genre", "punk") == [(2, 3), (1, 2)]
        assert chart(run, "top-five-songs-by-genre", "jazz") == [(9, 4), (10, 1)]
        assert chart(run, "top-five-songs", "all") == [(9, 4), (2, 3), (1, 2), (10, 1)]


def test_a_chart_has_five_songs_and_the_sixth_can_come_back() -> None:
    with on_driver(app) as run:
        run.write(map(song, SONGS))
        for number in range(1, 7):
            run.write(plays(number, 10 - number))
        assert [each for each, _ in chart(run, "top-five-songs", "all")] == [1, 2, 3, 4, 5]

        run.write(plays(6, 7))
        assert chart(run, "top-five-songs", "all") == [(6, 11), (1, 9), (2, 8), (3, 7), (4, 6)]


def test_bad_input_is_counted_and_kept() -> None:
    good, songs = play(1), list(map(song, SONGS))
    unknown = good._replace(value=PlayEvent(99, 60_000))

    assert fates_of(app, good, before=songs, unknown=unknown) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.PROCESSED,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
        "unknown": Fate.DEAD_LETTER,
    }
    assert fates_of(app, songs[0])["null key"] is Fate.DROPPED


def test_end_to_end_the_charts_are_those_of_the_plays(tmp_path: Path) -> None:
    records = [*islice(feed(), 200)]
    counts = Counter(
        each.value.song_id
        for each in records
        if each.topic == "play-events" and each.value.duration >= 30_000
    )
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(records)

        last = run.read("chart")[-1].value
    expected = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:5]
    assert [(each.song_id, each.plays) for each in last.songs] == expected
