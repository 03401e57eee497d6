"""The scenarios of docs/differences.md: what Kafka Streams did, and what Headrace does instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace_conformance.run import run_scenario

FOLDER = Path(__file__).parents[2] / "conformance" / "differences"


def both(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    golden = json.loads((FOLDER / "goldens" / "differences" / f"{name}.json").read_text())
    scenario = json.loads((FOLDER / "scenarios" / "differences" / f"{name}.json").read_text())
    return golden, dict(run_scenario(scenario))


def outputs(result: dict[str, Any]) -> list[Any]:
    return [[r["value"] for r in step["out"].get("out", [])] for step in result["steps"]]


def test_the_serde_of_a_computed_table_is_kept() -> None:
    kafka, headrace = both("serde-kept")

    assert "value serde" in kafka["build_error"]["message"]
    assert outputs(headrace) == [[], ["X"]]


def test_bytes_that_are_not_utf_8_are_left_to_the_handler() -> None:
    kafka, headrace = both("invalid-utf-8")

    assert outputs(kafka) == [["\ufffd"], ["x"]]
    assert outputs(headrace) == [[], ["x"]]
    assert (kafka["dropped"], headrace["dropped"]) == (0, 1)


def test_groupings_below_a_filter_below_a_key_change_are_merged() -> None:
    kafka, headrace = both("filter-below-key-change")

    assert "keyChangingChild" in kafka["build_error"]["message"]
    assert sum("Sink: c-repartition-sink" in line for line in headrace["describe"]) == 1
    assert headrace["topics"]["counts"][-1]["value"] == 2


def test_a_sliding_window_that_one_record_makes_and_deletes_is_gone() -> None:
    kafka, headrace = both("deleted-sliding-window")

    assert kafka["steps"][-1]["error"]["causes"] == ["NullPointerException"]
    assert outputs(headrace) == [["9"], []]


def test_the_sessions_of_a_key_can_be_read_backwards_before_the_first_record() -> None:
    kafka, headrace = both("sessions-of-an-empty-cache")

    assert "cannot be negative" in kafka["steps"][0]["error"]["message"]
    assert headrace["steps"][0]["rows"] == []
    assert headrace["topics"]["out"][0]["value"] == 1


def test_the_page_lists_every_scenario() -> None:
    page = (FOLDER.parents[1] / "docs" / "differences.md").read_text()

    scenarios = sorted(path.stem for path in (FOLDER / "scenarios").rglob("*.json"))
    assert [name for name in scenarios if f"`{name}`" not in page] == []
