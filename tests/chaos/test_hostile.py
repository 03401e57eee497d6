"""The campaign of hostile records: its sums match, a wrong sum is found, a seed repeats it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from chaos.hostile.__main__ import summary
from chaos.hostile.campaign import Campaign, Result, Sums, problems_of
from chaos.hostile.records import TOPICS, hostile_record

COUNT = 1_000


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Result]:
    logging.disable(logging.CRITICAL)  # a line for each record that is dropped
    yield Campaign(COUNT, 0, tmp_path_factory.mktemp("hostile")).run(lambda _: None)
    logging.disable(logging.NOTSET)


def test_each_hostile_record_is_an_output_or_a_counted_drop(result: Result) -> None:
    assert result.problems == []
    for outcome in result.outcomes:
        assert all(sums.is_right for sums in outcome.sums)
        assert sum(sums.records for sums in outcome.sums) >= COUNT
        assert {reason for sums in outcome.sums for reason in sums.dropped} >= {
            "deserialization",
            "invalid-timestamp",
            "late",
            "null-key",
            "null-value",
            "processing",
            "production",
            "refused",
            "serialization",
        }


def test_both_kinds_of_handlers_drop_the_same_records(result: Result) -> None:
    first, second = result.outcomes

    assert (first.name, second.name) == ("continue", "own")
    assert first.sums == second.sums
    assert first.dead_letters == second.dead_letters > 0


def test_the_summary_has_the_sums_and_the_memory(result: Result) -> None:
    text = summary(result)

    assert f"Dead letters: {result.outcomes[0].dead_letters:,}." in text
    assert text.endswith(" MB.")


ONE, OTHER, NONE = (b"text", b"0", b"1"), (b"text", b"0", b"2"), (None, b"-1", b"-1")


@pytest.mark.parametrize(
    ("sums", "dead_letters", "calls", "problem"),
    [
        (Sums("text", 10, 7, {"late": 2}), [], 0, "text has 10 records, but 9 ends."),
        (
            Sums("text", 3, 1, {"processing": 2}),
            [ONE],
            2,
            "2 records failed, but there are 1 dead letters.",
        ),
        (
            Sums("text", 3, 1, {"processing": 2}),
            [ONE, ONE],
            2,
            f"1 records have two dead letters, as {ONE}.",
        ),
        (
            Sums("text", 3, 1, {"processing": 1, "refused": 1}),
            [ONE, NONE],
            2,
            "1 dead letters name no record.",
        ),
        (
            Sums("text", 3, 1, {"processing": 1, "refused": 1}),
            [ONE, OTHER],
            3,
            "2 records failed, but handlers were called 3 times.",
        ),
    ],
)
def test_a_wrong_sum_is_a_problem(
    sums: Sums, dead_letters: list[tuple[bytes | None, ...]], calls: int, problem: str
) -> None:
    assert [*problems_of([sums], Counter(dead_letters), calls)] == [problem]


def test_right_sums_are_no_problem() -> None:
    sums = Sums("text", 4, 1, {"late": 1, "processing": 1, "refused": 1})

    assert [*problems_of([sums], Counter([ONE, OTHER]), 2)] == []
    assert [*problems_of([sums], Counter([ONE, OTHER]), None)] == []


@pytest.mark.parametrize("topic", TOPICS)
def test_a_seed_gives_the_same_records_again(topic: str) -> None:
    def records(seed: int) -> list[object]:
        return [hostile_record(topic, seed, number, 50) for number in range(50)]

    assert records(1) == records(1) != records(2)
