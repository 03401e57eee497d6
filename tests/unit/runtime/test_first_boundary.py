"""The start of the first batch: decided once, whatever happens to the topics later."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import CheckpointError, OffsetOutOfRangeError
from headrace.runtime.batches import BatchBoundary, digest
from headrace.runtime.checkpoint.files import FIRST_FILE
from tests.unit.runtime.planning import append, copying, name, planning, with_global_table

LATEST = {"consumer": {"auto.offset.reset": "latest"}}


def test_a_later_process_begins_where_the_first_one_did(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, **LATEST)
    append(plan.log, "in", 1)
    first = plan.planner().first()
    append(plan.log, "in", 2)
    end = plan.planner().next(first)

    append(plan.log, "in", 4)
    replayed = plan.planner().first()

    assert replayed == first == BatchBoundary({"in": [1]}, clock=0)
    assert end.offsets == {"in": [3]}
    assert digest(replayed, end) == digest(first, end)


def test_a_global_table_that_grows_does_not_change_the_first_batch(tmp_path: Path) -> None:
    plan = planning(with_global_table, tmp_path, {"in": 1, "rates": 1})
    append(plan.log, "in", 1)
    first = plan.planner().first()

    append(plan.log, "rates", 3)

    assert plan.planner().first() == first


def test_records_deleted_before_the_first_batch_are_not_skipped_in_silence(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    plan.planner().first()

    plan.log.delete_records({name("in"): 2})
    planner = plan.planner()

    with pytest.raises(OffsetOutOfRangeError):
        planner.next(planner.first())


def test_a_start_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    plan.planner().first()
    path = plan.checkpoint / FIRST_FILE
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(CheckpointError, match=f"{FIRST_FILE}.*`headrace reset app`"):
        plan.planner().first()
