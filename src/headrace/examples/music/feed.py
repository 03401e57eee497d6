"""Twelve songs of four genres, and then plays of them without end; some are too short."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

from headrace.examples.feeding import FeedRecord, print_lines
from headrace.examples.music.model import PlayEvent, Song

TOPICS = {"song-feed": 4, "play-events": 4}
PER_SECOND = 20
TRACED = 12
START = 1_540_000_000_000
SONGS = [
    Song(number, album, artist, name, genre)
    for number, (album, artist, name, genre) in enumerate(
        [
            ("Fresh Fruit for Rotting Vegetables", "Dead Kennedys", "Chemical Warfare", "Punk"),
            ("We Are the League", "Anti-Nowhere League", "Animal", "Punk"),
            ("Live in a Dive", "Subhumans", "All Gone Dead", "Punk"),
            ("PSI", "Wheres the Pope?", "Fear of God", "Punk"),
            ("Group Sex", "Circle Jerks", "Wild in the Streets", "Punk"),
            ("Walk Among Us", "Misfits", "Skulls", "Punk"),
            ("Raising Hell", "Run-D.M.C.", "Peter Piper", "Hip Hop"),
            ("Paid in Full", "Eric B. & Rakim", "I Know You Got Soul", "Hip Hop"),
            ("Kind of Blue", "Miles Davis", "So What", "Jazz"),
            ("A Love Supreme", "John Coltrane", "Resolution", "Jazz"),
            ("Dummy", "Portishead", "Roads", "Trip Hop"),
            ("Mezzanine", "Massive Attack", "Angel", "Trip Hop"),
        ],
        start=1,
    )
]


def song(each: Song) -> FeedRecord:
    return FeedRecord("song-feed", each.id, each, START)


def play(song_id: int, at: int = 0, duration: int = 60_000) -> FeedRecord:
    return FeedRecord("play-events", "UK", PlayEvent(song_id, duration), START + 1000 + at)


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    chance = random.Random(seed)
    yield from map(song, SONGS)
    for number in count():
        duration = chance.choice([5_000, 31_000, 90_000, 180_000])
        yield play(chance.choice(SONGS).id, 100 * number, duration)


if __name__ == "__main__":
    print_lines(feed())
