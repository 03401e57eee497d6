"""The running totals as a PySpark user writes them: one group, and one state, per key.

Kafka is read and written by a Python data source, as in Headrace, but row by row. The offsets are
committed to the application's group after each batch, so that progress is seen from outside as
with the other systems.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

import msgspec
import pandas as pd  # type: ignore[import-untyped]  # no stubs for one call
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from benchmarks.apps.plain_kafka import PARTITIONS, PlainKafka
from benchmarks.apps.spark_settings import SETTINGS


class Totals(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.totals = handle.getValueState("totals", "orders long, amount double")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        orders, amount = self.totals.get() if self.totals.exists() else (0, 0.0)
        for frame in rows:
            for value in frame["value"]:
                orders += 1
                amount += msgspec.json.decode(value)["final_amount"]
        self.totals.update((orders, amount))
        yield pd.DataFrame({"key": [key[0]], "orders": [orders], "amount": [amount]})

    def close(self) -> None:
        return


def main(arguments: list[str]) -> int:
    _workload, address, group, state, source, _table, output = arguments
    options = {"address": address, "group": group, "source": source, "output": output}
    builder = SparkSession.builder.master("local[2]")
    for name, setting in {**SETTINGS, "spark.sql.shuffle.partitions": str(PARTITIONS)}.items():
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()
    spark.dataSource.register(PlainKafka)
    orders = spark.readStream.format("plain-kafka").options(**options).load()
    schema = "key string, orders long, amount double"
    totals = orders.groupBy("key").transformWithStateInPandas(Totals(), schema, "Append", "None")
    writing = totals.writeStream.format("plain-kafka").options(**options).outputMode("append")
    query = writing.option("checkpointLocation", f"{state}/checkpoint").start()
    ended = Event()

    def await_end_of_input() -> None:
        sys.stdin.read()
        ended.set()

    Thread(target=await_end_of_input, daemon=True).start()
    commits = Consumer({"bootstrap.servers": address, "group.id": group})
    while query.isActive and not ended.wait(0.1):
        # Spark tells a source that its batch is finished only when the next one begins.
        progress = query.lastProgress
        if progress is not None:
            reached: dict[str, int] = json.loads(progress["sources"][0]["endOffset"])
            offsets = [TopicPartition(source, int(each), reached[each]) for each in reached]
            commits.commit(offsets=offsets, asynchronous=False)
    if not query.isActive:
        print(query.exception(), file=sys.stderr)
        return 1
    query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
