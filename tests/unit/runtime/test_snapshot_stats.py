from __future__ import annotations

import msgspec

from headrace.engine.record_failures import FirstFailure
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.planning.snapshot_stats import (
    MOST_ERROR_BYTES,
    MOST_ERRORS,
    MOST_SOURCES,
    batch_stats,
)
from headrace.runtime.run_files import BatchResult, PlannerStatus, Totals


def test_a_record_has_the_work_of_the_batch_and_the_totals_of_the_run() -> None:
    totals = Totals(
        batches=7,
        processed={"0_0": 10, "0_1": 5},
        dropped={"0_0": {"map": {"processing": 2}}, "0_1": {"map": {"processing": 1, "late": 9}}},
        written={"out": 12},
        failures=[FirstFailure("map", "processing", "It failed", "app.py:3")],
        sources={"0": {"source": 15}},
    )
    reports = [TaskReport("0_0", processed=3), TaskReport("0_1", processed=1)]
    status = PlannerStatus(ends={"in": [10, 20, 5]})

    stats = batch_stats(
        BatchResult(6, reports, totals), status, {"in": [4, -1], "other": [3]}, 0.12345
    )

    assert stats == {
        "tasks": 2,
        "processed": 4,
        "seconds": 0.123,
        "batches": 7,
        "processed_total": 15,
        "written": {"out": 12},
        "refused": {},
        "sources": {"0": {"source": 15}},
        "lag": {"in": [6, 0], "other": []},
        "errors": [
            {"node": "map", "reason": "late", "count": 9, "first": None, "line": None},
            {
                "node": "map",
                "reason": "processing",
                "count": 3,
                "first": "It failed",
                "line": "app.py:3",
            },
        ],
    }


def test_errors_are_few_and_short() -> None:
    nodes = {f"node{number}": {"processing": number + 1} for number in range(200)}
    failures = [FirstFailure(node, "processing", "x" * 5_000, None) for node in nodes]
    few = batch_stats(BatchResult(totals=Totals(dropped={"0_0": nodes})), PlannerStatus(), {}, 0.0)[
        "errors"
    ]
    short = batch_stats(
        BatchResult(totals=Totals(dropped={"0_0": nodes}, failures=failures)),
        PlannerStatus(),
        {},
        0.0,
    )["errors"]

    assert [error["count"] for error in few] == list(range(200, 200 - MOST_ERRORS, -1))
    assert 0 < len(short) <= MOST_ERRORS
    assert len(msgspec.json.encode(short)) <= MOST_ERROR_BYTES


def test_sources_are_counted_by_subtopology_up_to_a_limit() -> None:
    totals = Totals()
    totals.add([TaskReport("0_0", sources={"a": 1, "b": 2}), TaskReport("0_1", sources={"a": 3})])
    totals.add([TaskReport("1_0", sources={f"{number:03}": 1 for number in range(200)})])

    found = batch_stats(BatchResult(totals=totals), PlannerStatus(), {}, 0.0)["sources"]

    assert found["0"] == {"a": 4, "b": 2}
    assert sum(map(len, found.values())) == MOST_SOURCES
