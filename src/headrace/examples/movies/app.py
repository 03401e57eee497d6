"""Ratings of movies: the running average of each movie, with its title."""

from __future__ import annotations

from headrace import KafkaStreams, StreamsBuilder
from headrace.examples.movies.model import (
    CountAndSum,
    Movie,
    RatedMovie,
    Rating,
    movie_from,
    rating_from,
)


def movie_by_id(_key: int | None, line: str) -> tuple[int, Movie]:
    movie = movie_from(line)
    return movie.movie_id, movie


def rating_by_id(_key: int | None, line: str) -> tuple[int, Rating]:
    rating = rating_from(line)
    return rating.movie_id, rating


def add(_movie_id: int, rating: Rating, ratings: CountAndSum) -> CountAndSum:
    return ratings.plus(rating)


def rated(average: float, movie: Movie) -> RatedMovie:
    return RatedMovie(movie.movie_id, movie.title, movie.release_year, average)


builder = StreamsBuilder()
movies = (
    builder.stream("raw-movies", key=int, value=str)
    .map(movie_by_id)
    .to_table(materialized="movies-store")
)
# One aggregate holds count and sum. Two tables, joined, would show a new sum with an old count.
averages = (
    builder.stream("raw-ratings", key=int, value=str)
    .map(rating_by_id)
    .group_by_key()
    .aggregate(CountAndSum, add, materialized="count-and-sum")
    .map_values(CountAndSum.average, value=float, materialized="average-ratings")
)
averages.to_stream().to("average-ratings")
averages.join(movies, rated, materialized="rated-movies-store").to_stream().to("rated-movies")

app = KafkaStreams(
    builder.build(),
    application_id="kafka-films",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="movies-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
