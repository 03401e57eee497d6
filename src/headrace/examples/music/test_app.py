"""Charts of the plays that last long enough, and the fate of bad input."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path

import httpx

from headrace import KafkaStreams
from headrace.examples.checking import DriverRun, Fate, fates_of, in_process, on_driver
from headrace.examples.feeding import FeedRecord
from headrace.examples.instances.discovery import comes_true
from headrace.examples.music.app import app
from headrace.examples.music.feed import SONGS, TOPICS, feed, play, song
from headrace.examples.music.model import PlayEvent
from headrace.examples.music.web import add_routes
from headrace.examples.serving import answering


def chart(run: DriverRun, store: str, key: str) -> list[tuple[int, int]]:
    top = run.driver.get_key_value_store(store).get(key)
    return [(each.song_id, each.plays) for each in top.songs]


def lists(client: httpx.Client, url: str, store: str, hosts: set[str]) -> bool:
    """Return whether a path lists these instances, each with a store."""
    listed = client.get(url).json()
    return {f"{each['host']}:{each['port']}" for each in listed} == hosts and all(
        store in each["storeNames"] for each in listed
    )


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
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
        "unknown": Fate.DEAD_LETTER,
    }


def test_bad_songs_are_counted_and_kept() -> None:
    assert fates_of(app, song(SONGS[0])) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.PROCESSED,  # it deletes the song
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }


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


def test_end_to_end_the_charts_have_the_paths_of_the_demo(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    guarded = KafkaStreams(app.topology, app.config.with_settings(server_token_file=token))
    client = httpx.Client(headers={"Authorization": f"Bearer {token.read_text()}"}, timeout=60)
    with client, in_process(guarded, TOPICS, tmp_path) as run:
        run.write([*map(song, SONGS), *plays(1, 2), *plays(2, 3), *plays(9, 4)])
        with answering(run.app, 2, add_routes, first_port=0) as instances:
            assert httpx.get(f"{instances[0].url}/kafka-music/song/1").status_code == 401
            hosts = {each.url.removeprefix("http://") for each in instances}
            for url in (f"{each.url}/kafka-music" for each in instances):
                for path in ("instances", "instances/all-songs"):
                    assert comes_true(partial(lists, client, f"{url}/{path}", "all-songs", hosts))
                punk = client.get(f"{url}/charts/genre/Punk").json()
                assert [each["plays"] for each in punk] == [3, 2]
                assert punk[1]["name"] == "Chemical Warfare"
                top = client.get(f"{url}/charts/top-five").json()
                assert [each["plays"] for each in top] == [4, 3, 2]
                one = client.get(f"{url}/song/1").json()
                assert one == {name: punk[1][name] for name in ("artist", "album", "name")}
                missing = [client.get(f"{url}/{path}") for path in ("song/0", "charts/genre/polka")]
                assert [each.status_code for each in missing] == [404, 404]
