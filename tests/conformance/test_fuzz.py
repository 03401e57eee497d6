"""Random programs whose results in Kafka Streams were recorded."""

from __future__ import annotations

import logging

import pytest
from headrace_conformance.fuzz import differences, recorded
from headrace_conformance.grammar import random_scenario

RECORDED = list(recorded())


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_a_random_program_ends_as_in_kafka_streams(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    scenario, golden = RECORDED[number]

    found = differences(scenario, golden)

    assert not found, "\n".join(found)


def test_three_hundred_programs_are_recorded() -> None:
    assert len(RECORDED) >= 300


def test_a_seed_gives_the_same_program_again() -> None:
    assert random_scenario(7) == random_scenario(7)


def test_a_seed_with_keys_that_stay_has_no_step_that_changes_them() -> None:
    programs = [random_scenario(seed, keys_stay=True) for seed in range(50)]

    used = {operation["op"] for program in programs for operation in program["operations"]}
    assert not used & {"select_key", "map", "group_by", "repartition", "fk_join", "fk_left_join"}
