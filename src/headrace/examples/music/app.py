"""Charts of a streaming service: how often each song is played, and the top five per genre."""

from __future__ import annotations

from headrace import KafkaStreams, KTable, StreamsBuilder
from headrace.examples.music.model import PlayEvent, Song, SongPlayCount, TopFiveSongs

MIN_CHARTABLE_DURATION = 30_000
TOP_FIVE_KEY = "all"


def by_song_id(_region: str | None, event: PlayEvent) -> tuple[int, PlayEvent]:
    return event.song_id, event


def check_region(region: str | None, _event: PlayEvent | None) -> None:
    """Refuse a play without a region; its dead letter says why."""
    if region is None:
        msg = "The play has no region."
        raise ValueError(msg)


def check_id(song_id: int | None, _song: Song | None) -> None:
    """Refuse a song without an id, which a table would leave out; its dead letter says why."""
    if song_id is None:
        msg = "The song has no id."
        raise ValueError(msg)


def song_of(event: PlayEvent, song: Song | None) -> Song:
    if song is None:
        msg = f"there is no song {event.song_id}"
        raise ValueError(msg)
    return song


def song_itself(_song_id: int, song: Song) -> Song:
    return song


def by_genre(song: Song, plays: int) -> tuple[str, SongPlayCount]:
    return song.genre.lower(), SongPlayCount(song.id, plays)


def all_together(song: Song, plays: int) -> tuple[str, SongPlayCount]:
    return TOP_FIVE_KEY, SongPlayCount(song.id, plays)


def add(_chart: str, song: SongPlayCount, top: TopFiveSongs) -> TopFiveSongs:
    return top.plus(song)


def remove(_chart: str, song: SongPlayCount, top: TopFiveSongs) -> TopFiveSongs:
    return top.minus(song)


builder = StreamsBuilder()
song_feed = builder.stream("song-feed", key=int, value=Song).peek(check_id)
songs = song_feed.to_table(materialized="all-songs")
play_counts: KTable[Song, int] = (
    builder.stream("play-events", key=str, value=PlayEvent)
    .peek(check_region)
    .filter(lambda _region, event: event.duration >= MIN_CHARTABLE_DURATION)
    .map(by_song_id)
    .left_join(songs, song_of)
    .group_by(song_itself)
    .count(materialized="song-play-count")
)
(
    play_counts.group_by(by_genre)
    .aggregate(TopFiveSongs, add, remove, materialized="top-five-songs-by-genre")
    .to_stream()
    .to("charts-by-genre")
)
(
    play_counts.group_by(all_together)
    .aggregate(TopFiveSongs, add, remove, materialized="top-five-songs")
    .to_stream()
    .to("chart")
)

app = KafkaStreams(
    builder.build(),
    application_id="kafka-music-charts",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="music-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
