"""The batch time of a `transformWithState` query that has nothing to do: the floor of latency.

A Python stream source that promises something new in every batch and then yields no row, two
partitions, the RocksDB state store as Headrace sets it, and a sink that writes nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from benchmarks.apps.spark_settings import QUICK_JVM, SETTINGS

WARM_UP_BATCHES = 10


class Nothing(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"batch": 0}

    def latestOffset(self, start: Any = None, _limit: Any = None) -> dict[str, int]:  # noqa: N802
        return {"batch": start["batch"] + 1}

    def partitions(self, _start: Any, _end: Any) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, _partition: InputPartition) -> Iterator[tuple[int]]:
        return iter(())


class EmptySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "task int"

    def streamReader(self, schema: Any) -> Nothing:  # noqa: N802
        return Nothing()


class Idle(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "value int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        return iter(())

    def close(self) -> None:
        return


def main(seconds: float) -> int:
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
    for name, value in {**SETTINGS, **QUICK_JVM}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(EmptySource)
    tasks = spark.readStream.format("nothing").load().groupBy("task")
    idle = tasks.transformWithState(Idle(), "task int", "Append", "None")
    with tempfile.TemporaryDirectory(prefix="headrace-empty-") as checkpoint:
        stream = idle.writeStream.format("noop").outputMode("append")
        query = stream.option("checkpointLocation", checkpoint).start()
        took: dict[int, float] = {}
        until = None
        while until is None or time.monotonic() < until:
            time.sleep(0.5)
            for progress in query.recentProgress:
                took[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
            if until is None and len(took) > WARM_UP_BATCHES:
                until = time.monotonic() + seconds
            if not query.isActive:
                print(query.exception(), file=sys.stderr)
                return 1
        query.stop()
    spark.stop()
    measured = [took[batch] for batch in sorted(took)[WARM_UP_BATCHES:]]
    print(json.dumps({"batches": len(measured), "batch_ms": statistics.median(measured)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0))
