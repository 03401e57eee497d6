"""Reads Spark's state of an application from the checkpoint of a query that has ended."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from pathlib import Path
from typing import Any

from headrace.runtime.btree.blobs import MemoryBlobs
from headrace.runtime.in_process import Blobs
from headrace.spark.batch_log import SPARK_FOLDER


def blobs_in(checkpoint: Path, session: Any, stages: int) -> Blobs:
    """Return what Spark keeps for each stage and group; nothing before the first batch has ended.

    Args:
        checkpoint: That of the application.
        session: The Spark session to read with.
        stages: How many stages the query has.
    """
    blobs: Blobs = defaultdict(MemoryBlobs)
    if stages == 0 or not any((checkpoint / SPARK_FOLDER / "commits").glob("[0-9]*")):
        return blobs
    # One job for all stages: each job takes longer to start than to read so little.
    read = (_rows_of(checkpoint, session, stages, stage) for stage in range(1, stages + 1))
    for stage, grouping_key, key, value in reduce(
        lambda some, more: some.union(more), read
    ).collect():
        blobs[stage, grouping_key].blobs[bytes(key)] = bytes(value)
    return blobs


def _rows_of(checkpoint: Path, session: Any, stages: int, stage: int) -> Any:
    rows = (
        session.read.format("statestore")
        .option("operatorId", stages - stage)  # Spark counts from the end
        .option("stateVarName", "data")
        .load(str(checkpoint / SPARK_FOLDER))
    )
    subtopologies = ("key.*", "user_map_key.*", "user_map_value.*")
    return rows.selectExpr(f"{stage} AS stage", *subtopologies)
