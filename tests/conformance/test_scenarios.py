"""Every scenario must end as Kafka Streams ended it: see conformance/README.md."""

from __future__ import annotations

import pytest
from headrace_conformance.compare import behaviour_differences, naming_differences
from headrace_conformance.run import run_scenario
from headrace_conformance.scenarios import load_golden, load_scenario, scenario_names


@pytest.mark.parametrize("name", scenario_names())
def test_a_scenario_behaves_and_is_named_as_in_kafka_streams(name: str) -> None:
    result, golden = run_scenario(load_scenario(name)), load_golden(name)

    differences = [*behaviour_differences(result, golden), *naming_differences(result, golden)]

    assert not differences, "\n".join(differences)
