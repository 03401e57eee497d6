from __future__ import annotations

from typing import Any

from headrace_conformance.compare import behaviour_differences, naming_differences
from headrace_conformance.scenarios import load_golden, scenario_names

Recorded = dict[str, Any]


def recorded(*steps: Recorded, **parts: Any) -> Recorded:
    return {
        "steps": list(steps),
        "topics": {},
        "stores": {},
        "dropped_by_task": {},
        "names": {"processors": [], "stores": [], "internal_topics": []},
        "describe": ["Topologies:"],
        **parts,
    }


def written(*values: Any, topic: str = "out", **more: Any) -> Recorded:
    return {"out": {topic: [{"key": "a", "value": value, "ts": 0, **more} for value in values]}}


FAILED = {"error": {"type": "E", "causes": [], "message": "no"}, "out": {}}
REFUSED = {"build_error": {"type": "TopologyError", "causes": [], "message": "no"}}


def test_a_golden_agrees_with_itself() -> None:
    for name in scenario_names():
        golden = load_golden(name)

        assert behaviour_differences(golden, golden) == []
        assert naming_differences(golden, golden) == []


def test_the_order_within_a_topic_counts() -> None:
    (difference,) = behaviour_differences(recorded(written(2, 1)), recorded(written(1, 2)))

    assert difference.startswith("step 0, topic out: (- Kafka, + Headrace)")


def test_the_order_of_topics_does_not_count() -> None:
    one, two = written(1, topic="x")["out"], written(1, topic="y")["out"]

    assert not behaviour_differences(recorded({"out": one | two}), recorded({"out": two | one}))


def test_a_long_is_not_a_double() -> None:
    assert behaviour_differences(recorded(written(1)), recorded(written(1.0)))
    assert behaviour_differences(recorded(written(True)), recorded(written(1)))


def test_the_order_of_fields_does_not_count() -> None:
    got, golden = recorded(written({"a": 1, "b": 2})), recorded(written({"b": 2, "a": 1}))

    assert not behaviour_differences(got, golden)


def test_headers_count() -> None:
    got = recorded(written(1))

    assert behaviour_differences(got, recorded(written(1, headers=[["h", "x"]])))


def test_headers_of_dead_letters_that_java_wrote_do_not_count() -> None:
    python = [["h", "x"], ["__streams.errors.exception", "ValueError"]]
    java = [["h", "x"], ["__streams.errors.exception", "oracle.UserError"]]

    assert not behaviour_differences(
        recorded(written(1, headers=python)), recorded(written(1, headers=java))
    )


def test_rows_are_compared_in_order() -> None:
    rows = [{"key": "a", "value": 1}, {"key": "b", "value": 2}]

    assert behaviour_differences(recorded({"rows": rows[::-1]}), recorded({"rows": rows}))


def test_entries_of_a_store_are_compared_sorted() -> None:
    entries = [{"key": "a", "value": 1}, {"key": "b", "value": 2}]
    golden = recorded(stores={"s": {"type": "key_value", "entries": entries}})

    assert not behaviour_differences(
        recorded(stores={"s": {"type": "key_value", "entries": entries[::-1]}}), golden
    )
    assert behaviour_differences(
        recorded(stores={"s": {"type": "key_value", "entries": entries[:1]}}), golden
    )
    assert behaviour_differences(recorded(), golden)


def test_dropped_records_are_compared_by_step_and_in_sum() -> None:
    assert behaviour_differences(recorded({"out": {}}), recorded({"out": {}, "dropped": 1}))
    assert behaviour_differences(
        recorded(dropped_by_task={"0_0": 1.0}), recorded(dropped_by_task={"0_0": 2.0})
    )
    assert not behaviour_differences(
        recorded(dropped_by_task={"0_0": 1, "1_0": 1}), recorded(dropped_by_task={"0_0": 2.0})
    )
    assert behaviour_differences(
        recorded(dropped_by_task={"0_0": 1}), recorded(dropped_by_task={"-1_-1": 1.0})
    )


def test_both_must_fail_at_the_same_step() -> None:
    golden = recorded(written(1), FAILED)

    assert not behaviour_differences(recorded(written(1), FAILED), golden)
    assert behaviour_differences(recorded(FAILED), golden)
    assert behaviour_differences(recorded(written(1), written(2)), golden)


def test_the_stores_after_a_failing_step_do_not_count() -> None:
    golden = recorded(FAILED, stores={"s": {"type": "key_value", "entries": []}})

    assert not behaviour_differences(recorded(FAILED), golden)


def test_both_must_refuse_to_build() -> None:
    assert not behaviour_differences(REFUSED, REFUSED)
    assert behaviour_differences(REFUSED, recorded()) == ["not built: TopologyError: no"]
    assert behaviour_differences(recorded(), REFUSED) == ["built, though Kafka says: no"]


def test_describe_is_compared_line_by_line() -> None:
    (difference,) = naming_differences(recorded(describe=["a", "x"]), recorded(describe=["a", "b"]))

    assert difference.splitlines()[-2:] == ["-b", "+x"]


def test_the_class_of_a_topic_chooser_does_not_count() -> None:
    got = recorded(describe=["    Sink: s (extractor class: build.<locals>.<lambda>)"])

    assert not naming_differences(got, recorded(describe=["    Sink: s (extractor class: LAMBDA)"]))


def named(*topics: str) -> Recorded:
    names = {"processors": [], "stores": [], "internal_topics": list(topics)}
    return recorded(names=names)


def test_internal_topics_are_compared() -> None:
    assert naming_differences(named("oracle-s-repartition"), named())
    assert naming_differences(named(), named("oracle-s-changelog"))


def test_changelogs_that_kafka_did_not_write_do_not_count() -> None:
    assert not naming_differences(named("oracle-s-changelog"), named())
