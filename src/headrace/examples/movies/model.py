"""The records of the example, and how the lines of the demo become records."""

from __future__ import annotations

import math

from msgspec import Struct


class Movie(Struct):
    movie_id: int
    title: str
    release_year: int


class Rating(Struct):
    movie_id: int
    rating: float


class CountAndSum(Struct):
    count: int = 0
    sum: float = 0.0

    def plus(self, rating: Rating) -> CountAndSum:
        return CountAndSum(self.count + 1, self.sum + rating.rating)

    def average(self) -> float:
        return self.sum / self.count


class RatedMovie(Struct):
    movie_id: int
    title: str
    release_year: int
    rating: float


def movie_from(line: str) -> Movie:
    """Return the movie of a line ``id::title::year::…``."""
    movie_id, title, year, *_ = line.split("::")
    return Movie(int(movie_id), title, int(year))


def rating_from(line: str) -> Rating:
    """Return the rating of a line ``user::movie::rating``.

    Raises:
        ValueError: The line has other parts, or the rating is no number: `float` reads "nan".
    """
    _, movie_id, rating = line.split("::")
    if not math.isfinite(stars := float(rating)):
        msg = f"The rating {rating} is no number."
        raise ValueError(msg)
    return Rating(int(movie_id), stars)
