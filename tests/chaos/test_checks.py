"""Each check finds the anomaly that it is for, planted into what a right round wrote."""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from chaos.checks import Verdict, all_records, shown_key, stamp_of
from chaos.contract import Lane, Logged
from chaos.workloads import WORKLOADS
from tests.chaos.in_process_round import Round, run_round
from tests.chaos.workload_params import by_tier

SHOWN = [name for name, workload in WORKLOADS.items() if workload.shown]
TRACED = [name for name, workload in WORKLOADS.items() if workload.traced]
STORES = [(name, store) for name, workload in WORKLOADS.items() for store in workload.stores]


@cache
def right_round(name: str) -> Round:
    with TemporaryDirectory() as folder:
        return run_round(WORKLOADS[name], Path(folder), seed=4, count=900)


@pytest.fixture
def done(request: pytest.FixtureRequest) -> Round:
    """A right round, to spoil."""
    return deepcopy(right_round(request.node.callspec.params["name"]))


@pytest.mark.parametrize("name", by_tier(WORKLOADS))
def test_a_missing_result_is_lost(name: str, done: Round) -> None:
    last = last_result(done)
    done.outputs[last.topic][last.partition].remove(last)

    assert done.verdict().lost > 0


@pytest.mark.parametrize("name", by_tier(WORKLOADS))
def test_a_result_that_is_there_twice_is_doubled(name: str, done: Round) -> None:
    last = last_result(done)
    done.outputs[last.topic][last.partition].append(last)

    assert done.verdict().doubled > 0


@pytest.mark.parametrize("name", by_tier(WORKLOADS))
def test_results_of_a_key_in_another_order_are_in_the_wrong_order(name: str, done: Round) -> None:
    for records in partitions_of(done):
        one, other = two_of_a_lane(name, records)
        records[one], records[other] = records[other], records[one]

    found = done.verdict()

    assert found.wrong_order > 0
    assert found.lost == 0


@pytest.mark.parametrize("name", by_tier(WORKLOADS))
def test_a_batch_in_two_transactions_is_torn(name: str, done: Round) -> None:
    records, place = inside_a_batch(done)
    records[place] = in_another_transaction(records[place])

    found = done.verdict()

    assert found.counts() == {**Verdict().counts(), "torn": 1}


@pytest.mark.parametrize("name", ["read_back"])
def test_a_batch_of_a_topic_that_is_read_back_in_two_transactions_is_torn(
    name: str, done: Round
) -> None:
    for topic in list(done.outputs):
        if topic != "looped-back":
            done.outputs[topic] = {}  # another subtopology
    records, place = inside_a_batch(done)
    records[place] = in_another_transaction(records[place])

    assert done.verdict().torn == 1


@pytest.mark.parametrize("name", ["running_aggregate"])
def test_a_batch_that_has_a_transaction_for_each_topic_is_torn(name: str, done: Round) -> None:
    batch = stamp_of(last_result(done))
    for records in done.outputs["running-echo"].values():
        records[:] = [
            in_another_transaction(each) if stamp_of(each) == batch else each for each in records
        ]

    assert done.verdict().counts() == {**Verdict().counts(), "torn": 1}


@pytest.mark.parametrize("name", by_tier(SHOWN))
def test_a_change_in_another_transaction_than_its_output_is_torn(name: str, done: Round) -> None:
    store, topic = WORKLOADS[name].shown or ("", "")
    shown = Counter((each.key, each.value) for each in all_records({topic: done.outputs[topic]}))
    records = max(done.changelogs[store].values(), key=len)
    keys = [shown_key(WORKLOADS[name], each.key) for each in records]
    place = next(n for n, each in enumerate(records) if shown[keys[n], each.value] == 1)
    records[place] = in_another_transaction(records[place])

    assert done.verdict().counts() == {**Verdict().counts(), "torn": 1}


@pytest.mark.parametrize("name", by_tier(WORKLOADS))
def test_outputs_without_markers_are_torn(name: str, done: Round) -> None:
    found = replace(done, markers={}).verdict()

    assert found.counts() == {**Verdict().counts(), "torn": 1}


@pytest.mark.parametrize("name", ["running_aggregate"])
def test_a_batch_that_one_topic_has_and_another_has_not_is_torn(name: str, done: Round) -> None:
    last = last_result(done)
    batch = stamp_of(last)
    records = done.outputs["running-echo"][last.partition]
    records[:] = [each for each in records if stamp_of(each) != batch]

    assert done.verdict().torn > 0


@pytest.mark.parametrize("name", by_tier(WORKLOADS))
def test_a_result_with_another_value_is_wrong(name: str, done: Round) -> None:
    last = last_result(done)
    spoilt = json.loads(last.value or b"")
    if isinstance(spoilt, dict):
        changed = "sum" if "sum" in spoilt else sorted(spoilt)[-1]
        spoilt[changed] = f"{spoilt[changed]}0" if changed != "sum" else spoilt["sum"] + 1
    else:
        spoilt = [*spoilt[:-1], "r0.p0.0"]
    value = json.dumps(spoilt).encode()
    records = done.outputs[last.topic][last.partition]
    records[records.index(last)] = last._replace(value=value)

    found = done.verdict()

    assert found.wrong_state + found.unexplained > 0


@pytest.mark.parametrize("name", ["running_aggregate", "rekeyed_aggregate", "read_back"])
def test_an_event_that_was_counted_twice_shows_as_a_wrong_state(name: str, done: Round) -> None:
    last = last_result(done)
    value = json.loads(last.value or b"")
    value["count"] += 1
    records = done.outputs[last.topic][last.partition]
    records[records.index(last)] = last._replace(value=json.dumps(value).encode())

    assert done.verdict().counts() == {**Verdict().counts(), "wrong_state": 1}


@pytest.mark.parametrize(("name", "store"), by_tier(STORES))
def test_a_changelog_without_its_last_record_is_wrong(name: str, store: str, done: Round) -> None:
    records = max(done.changelogs[store].values(), key=len)
    del records[-1]

    assert done.verdict().counts() == {**Verdict().counts(), "wrong_changelog": 1}


@pytest.mark.parametrize(("name", "store"), by_tier(STORES))
def test_a_store_that_holds_something_else_is_wrong(name: str, store: str, done: Round) -> None:
    done.stores[store][b"unknown"] = {"count": 1}

    assert done.verdict().counts() == {**Verdict().counts(), "wrong_state": 1}


@pytest.mark.parametrize("name", by_tier(TRACED))
def test_an_input_that_counts_as_read_but_shows_nowhere_is_ahead(name: str, done: Round) -> None:
    topic, *_ = topics = WORKLOADS[name].topics
    last = next(each for each in reversed(done.inputs[topic][0]) if each.value is not None)
    unread = last._replace(offset=done.inputs[topic][0][-1].offset + 1, value=another_id(last))
    done.inputs[topic][0].append(unread)

    behind = done.verdict()
    all_read = {(topic, n): 10**6 for topic in topics for n in done.inputs[topic]}
    ahead = replace(done, committed=all_read).verdict()

    assert (behind.unread, behind.offsets_ahead) == (1, 0)
    assert (ahead.unread, ahead.offsets_ahead) == (0, 1)


@pytest.mark.parametrize("name", ["running_aggregate"])
def test_a_verdict_names_what_it_found(name: str, done: Round) -> None:
    last = last_result(done)
    done.outputs[last.topic][last.partition].remove(last)
    identity = json.loads(last.value or b"")["id"]

    found = done.verdict()

    assert not found.is_clean
    assert any(identity in each and each.startswith("lost: ") for each in found.examples)


def last_result(done: Round) -> Logged:
    """Return the last result of some key, not the end of one."""
    *_, topic = done.outputs
    last = {each.key: each for each in all_records({topic: done.outputs[topic]})}
    return next(each for each in last.values() if each.value is not None)


def partitions_of(done: Round) -> list[list[Logged]]:
    topic = [topic for topic, partitions in done.outputs.items() if partitions][-1]
    return [records for records in done.outputs[topic].values() if records]


def two_of_a_lane(name: str, records: list[Logged]) -> tuple[int, int]:
    """Return the places of two records of one lane that say different things."""
    workload, seen = WORKLOADS[name], dict[Lane, tuple[int, Any]]()
    for place, record in enumerate(records):
        alone = {
            topic: {0: [record]} if topic == record.topic else {} for topic in workload.outputs
        }
        for lane, results in workload.observed(alone).items():
            before, others = seen.setdefault(lane, (place, results))
            if results != others and lane[0] != "last":
                return before, place
    raise AssertionError(f"No lane of {name} has two results.")


def inside_a_batch(done: Round) -> tuple[list[Logged], int]:
    """Return a partition and an index in it that is inside a batch."""
    for records in partitions_of(done):
        for place, (one, other) in enumerate(pairwise(records)):
            if stamp_of(one) == stamp_of(other) is not None:
                return records, place + 1
    raise AssertionError("No batch has two records.")


def in_another_transaction(record: Logged) -> Logged:
    return record._replace(unit=record.unit + 10**9)


def another_id(record: Logged) -> bytes:
    return (record.value or b"").replace(b"r4.p", b"r5.p")
