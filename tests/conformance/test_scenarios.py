"""Every scenario must end as Kafka Streams ended it: see conformance/README.md."""

from __future__ import annotations

from functools import cache

import pytest
from headrace_conformance.compare import behaviour_differences, naming_differences
from headrace_conformance.run import Result, run_scenario
from headrace_conformance.scenarios import load_golden, load_scenario, scenario_names


@cache
def result_of(name: str) -> Result:
    return run_scenario(load_scenario(name))


@pytest.mark.parametrize("name", scenario_names())
def test_a_scenario_behaves_as_in_kafka_streams(name: str) -> None:
    differences = behaviour_differences(result_of(name), load_golden(name))

    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("name", scenario_names())
def test_a_scenario_is_named_and_described_as_in_kafka_streams(name: str) -> None:
    differences = naming_differences(result_of(name), load_golden(name))

    assert not differences, "\n".join(differences)
