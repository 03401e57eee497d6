"""Running averages with titles, and the fate of bad input."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import islice
from pathlib import Path

import httpx
import pytest

from headrace import KafkaStreams
from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.instances.discovery import comes_true
from headrace.examples.movies.app import app
from headrace.examples.movies.feed import MOVIES, TOPICS, feed, movie, rating
from headrace.examples.movies.model import Movie, RatedMovie, movie_from
from headrace.examples.movies.web import add_routes
from headrace.examples.serving import answering

WEAPON = movie(362)


def lists(client: httpx.Client, url: str, store: str, hosts: set[str]) -> bool:
    """Return whether a path lists these instances, each with a store."""
    listed = client.get(url).json()
    return {f"{each['host']}:{each['port']}" for each in listed} == hosts and all(
        store in each["storeNames"] for each in listed
    )


def test_a_movie_is_a_line_of_the_demo() -> None:
    line = (
        "362::Lethal Weapon::1987::105::United States::6.7::76999::Action|Comedy::Mel Gibson|"
        "Danny Glover::Richard Donner::Michael Kamen|Eric Clapton::Shane Black::Stephen Goldblatt"
        "::Warner Bros."
    )

    assert movie_from(line) == Movie(362, "Lethal Weapon", 1987)


def test_the_average_runs_along_with_the_title() -> None:
    with on_driver(app) as run:
        run.write([WEAPON, rating(362, 10), rating(362, 8)])

        assert [each.value for each in run.read("rated-movies")] == [
            RatedMovie(362, "Lethal Weapon", 1987, 10.0),
            RatedMovie(362, "Lethal Weapon", 1987, 9.0),
        ]
        assert run.driver.get_key_value_store("average-ratings").get(362) == 9.0
        assert run.driver.get_key_value_store("movies-store").get(362).title == "Lethal Weapon"
        assert run.driver.get_key_value_store("rated-movies-store").get(362).rating == 9.0


def test_a_movie_that_comes_after_its_ratings_is_rated_then() -> None:
    with on_driver(app) as run:
        run.write([rating(362, 10)])
        assert run.read("rated-movies") == []

        run.write([WEAPON])
        assert [each.value.rating for each in run.read("rated-movies")] == [10.0]


def test_bad_input_is_counted_and_kept() -> None:
    good = rating(362, 10)
    cases = {each: good._replace(value=f"1::362::{each}") for each in ("ten", "nan", "inf")}

    assert fates_of(app, good, before=[WEAPON], **cases) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.PROCESSED,  # the line has the id; the demo's files have no keys
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
        **dict.fromkeys(cases, Fate.DEAD_LETTER),
    }


def test_bad_movies_are_counted_and_kept() -> None:
    assert fates_of(app, WEAPON, no_year=WEAPON._replace(value="362::Lethal Weapon::old")) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.PROCESSED,  # the line has the id; the demo's files have no keys
        "tombstone": Fate.DEAD_LETTER,  # without a line there is no id to delete
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
        "no_year": Fate.DEAD_LETTER,
    }


def test_end_to_end_the_averages_are_those_of_the_ratings(tmp_path: Path) -> None:
    records = [*islice(feed(), 200)]
    given: defaultdict[int, list[float]] = defaultdict(list)
    for record in records:
        if record.topic == "raw-ratings":
            given[record.key].append(float(record.value.rpartition("::")[2]))
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(records)

        rated = {each.key: each.value for each in run.read("rated-movies")}
    assert {each.movie_id: each.title for each in rated.values()} == {
        movie_id: title for movie_id, (title, _, _) in MOVIES.items()
    }
    for movie_id, stars in given.items():
        assert rated[movie_id].rating == pytest.approx(sum(stars) / len(stars))


def test_end_to_end_a_movie_has_the_path_of_the_demo(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    guarded = KafkaStreams(app.topology, app.config.with_settings(server_token_file=token))
    client = httpx.Client(headers={"Authorization": f"Bearer {token.read_text()}"}, timeout=60)
    with client, in_process(guarded, TOPICS, tmp_path) as run:
        run.write([WEAPON, rating(362, 10), rating(362, 8)])
        with answering(run.app, 2, add_routes, first_port=0) as instances:
            assert httpx.get(f"{instances[0].url}/iq/keyvalue/movies-store/1").status_code == 401
            hosts = {each.url.removeprefix("http://") for each in instances}
            for path in ("instances", "instances/movies-store"):
                url = f"{instances[0].url}/iq/{path}"
                assert comes_true(partial(lists, client, url, "movies-store", hosts))
            for url in (f"{each.url}/iq/keyvalue" for each in instances):
                rated = client.get(f"{url}/rated-movies-store/362").json()
                assert rated == {
                    "key": 362,
                    "value": {
                        "movie_id": 362, "title": "Lethal Weapon", "release_year": 1987,
                        "rating": 9.0,
                    },
                }  # fmt: skip
                movie = client.get(f"{url}/movies-store/362").json()["value"]
                assert movie["title"] == "Lethal Weapon"
                assert client.get(f"{url}/movies-store/1").status_code == 404
