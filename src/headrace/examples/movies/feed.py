"""Five movies, the three ratings of the demo's test, and then ratings without end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"raw-movies": 2, "raw-ratings": 2}
PER_SECOND = 20
TRACED = 6
START = 1_540_000_000_000
MOVIES = {
    128: ("The Big Lebowski", 1998, 8.2),
    211: ("A Beautiful Mind", 2001, 8.5),
    354: ("Tree of Life", 2011, 6.1),
    362: ("Lethal Weapon", 1987, 6.7),
    782: ("A Walk in the Clouds", 1995, 5.6),
}
"""The title, the year and about the rating of each movie."""


def movie(movie_id: int) -> FeedRecord:
    title, year, rating = MOVIES[movie_id]
    line = f"{movie_id}::{title}::{year}::105::United States::{rating}::76999::Action"
    return FeedRecord("raw-movies", movie_id, line, START)


def rating(movie_id: int, stars: float, at: int = 0) -> FeedRecord:
    return FeedRecord("raw-ratings", movie_id, f"1::{movie_id}::{stars}", START + 1000 + at)


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    chance = random.Random(seed)
    yield from map(movie, MOVIES)
    for stars in (8, 9, 10):
        yield rating(362, stars)
    for number in count(1):
        movie_id = chance.choice([*MOVIES])
        near = MOVIES[movie_id][2] + chance.uniform(-2, 2)
        yield rating(movie_id, round(min(10.0, max(0.0, near)), 1), 100 * number)


if __name__ == "__main__":
    print_lines(feed())
