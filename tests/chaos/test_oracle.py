"""Each workload, run without faults, does what the oracle expects, which shares no code with it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from chaos import checks, contract, oracle, reading, watching
from chaos.contract import Lanes, Logged
from chaos.workloads import WORKLOADS
from chaos.workloads.foreign_key_join import WORKLOAD as FOREIGN_KEY_JOIN
from tests.chaos.in_process_round import run_round

SEEDS = (1, pytest.param(2, marks=pytest.mark.nightly("faults")))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_round_without_faults_is_clean(name: str, seed: int, tmp_path: Path) -> None:
    done = run_round(WORKLOADS[name], tmp_path, seed=seed, count=600)
    found = done.verdict()

    assert done.batches > 10
    assert found.examples == []
    assert found.is_clean
    assert done.watched.is_clean
    written = {topic for topic, partitions in done.outputs.items() if any(partitions.values())}
    assert done.outputs.keys() - written <= {"framed-letters"}
    assert all(any(partitions.values()) for partitions in done.changelogs.values())
    assert done.stores.keys() == done.workload.stores.keys()


@pytest.mark.parametrize("name", WORKLOADS)
def test_records_are_the_same_from_any_start(name: str) -> None:
    workload = WORKLOADS[name]

    whole = list(workload.records(5, 0, 600))
    pieces = [*workload.records(5, 0, 250), *workload.records(5, 250, 350)]

    assert pieces == whole
    assert {each.topic for each in whole} == set(workload.topics)
    assert list(workload.records(6, 0, 600)) != whole


@pytest.mark.parametrize("module", [checks, contract, oracle, reading, watching])
def test_the_judge_shares_no_code_with_the_runtime(module: object) -> None:
    path = Path(str(module.__file__))  # type: ignore[attr-defined]  # modules have one
    tree = ast.parse(path.read_text())

    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(each.name for each in node.names)]
    }

    assert not [name for name in imported if name.partition(".")[0] in ("headrace", "tests")]
    assert not [name for name in imported if name.startswith("chaos.workloads")]


def test_a_window_closes_when_stream_time_reaches_its_end_and_grace() -> None:
    # Kafka's own example, in windows of 2 s with a grace of 1 s: the last record is too late.
    times = [0, 1_000, 2_000, 1_000, 0, 5_000, 0]
    records = [
        event("windowed-events", number, timestamp) for number, timestamp in enumerate(times)
    ]

    lanes = oracle.windowed_suppress({"windowed-events": {0: records}}).lanes

    (results,) = lanes_of("windowed-totals", lanes)
    (changes,) = lanes_of("windowed-changes", lanes)
    (echo,) = lanes_of("windowed-echo", lanes)
    assert [(start, value["count"], timestamp) for start, (value, timestamp) in results] == [
        (0, 4, 1_000),
        (2_000, 1, 2_000),
    ]
    assert [identity for identity, _ in changes] == ["0", "1", "2", "3", "4", "5"]
    assert [identity for identity, _ in echo] == ["0", "1", "2", "3", "4", "5", "6"]


def test_an_event_without_a_partner_shows_when_its_grace_is_over() -> None:
    left = [event("join-left", 0, 0, key=b"alone"), event("join-left", 1, 0, key=b"both")]
    right = [event("join-right", 2, 5, key=b"both"), event("join-right", 3, 70_000, key=b"next")]

    open_yet = oracle.outer_join({"join-left": {0: left}, "join-right": {0: right}})
    right[1] = event("join-right", 3, 70_001, key=b"next")
    closed = oracle.outer_join({"join-left": {0: left}, "join-right": {0: right}})

    assert lanes_of("join-results", open_yet.lanes) == [[(("1", "2"), 5)]]
    assert lanes_of("join-results", closed.lanes) == [[(("1", "2"), 5)], [(("0", None), 0)]]
    assert open_yet.stores == {"join-store": {b"both": ["1 2"]}}
    assert closed.stores == {"join-store": {b"alone": ["0 None"], b"both": ["1 2"]}}


def test_a_click_is_joined_with_a_visit_of_its_user_within_the_window() -> None:
    clicks = [click("r1.p0.0", "ann", 0), click("r1.p1.1", "ann", 7), click("r1.p0.2", "bob", 0)]
    visits = [event("visits", 3, 5, key=b"ann"), event("visits", 4, 60_001, key=b"bob")]

    far = oracle.rekeyed_join({"clicks": {0: clicks}, "visits": {0: visits}})
    visits[1] = event("visits", 4, 60_000, key=b"bob")
    near = oracle.rekeyed_join({"clicks": {0: clicks}, "visits": {0: visits}})

    of_ann = [[(("r1.p0.0", "3"), 5)], [(("r1.p1.1", "3"), 7)]]
    of_bob = [(("r1.p0.2", "4"), 60_000)]
    assert lanes_of("visited-clicks", far.lanes) == of_ann
    assert lanes_of("visited-clicks", near.lanes) == [of_bob, *of_ann]
    assert far.stores == {"visited-store": {b"ann": ["r1.p0.0 3", "r1.p1.1 3"]}}
    assert len(lanes_of("click-echo", far.lanes)) == len(clicks)


def test_a_deleted_order_leaves_nothing_and_a_deleted_product_its_order_alone() -> None:
    orders = [order(0, b"kept", "p"), order(1, b"deleted", "p"), order(2, b"unpriced", "q")]
    orders.append(orders[1]._replace(offset=3, value=None))
    products = [event("products", 4, 0, key=b"p"), event("products", 5, 0, key=b"q")]
    products.append(products[1]._replace(offset=6, value=None))

    expected = FOREIGN_KEY_JOIN.expected({"orders": {0: orders}, "products": {0: products}})

    assert expected.stores["priced-store"] == {
        b"kept": {"order": "0", "product": "4"},
        b"unpriced": {"order": "2", "product": None},
    }


def lanes_of(topic: str, lanes: Lanes) -> list[list[tuple[Any, Any]]]:
    return [results for lane, results in sorted(lanes.items()) if lane[0] == topic]


def event(topic: str, number: int, timestamp: int, key: bytes = b"k") -> Logged:
    value = f'{{"id": "{number}", "amount": 1}}'.encode()
    return Logged(topic, 0, number, timestamp, key, value, (), 0)


def click(identity: str, user: str, timestamp: int) -> Logged:
    value = f'{{"id": "{identity}", "user": "{user}"}}'.encode()
    return Logged("clicks", 0, 0, timestamp, b"page", value, (), 0)


def order(number: int, key: bytes, product: str) -> Logged:
    value = f'{{"id": "{number}", "product": "{product}"}}'.encode()
    return Logged("orders", 0, number, 0, key, value, (), 0)
