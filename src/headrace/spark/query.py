"""The one streaming query of an application: source, stages, sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.spark.batch_log import SPARK_FOLDER
from headrace.spark.shipping import ShippedProgram
from headrace.spark.sink import sink_of
from headrace.spark.source import ROW_SCHEMA, source_of
from headrace.spark.task_host import TaskHost


def start_query(
    session: SparkSession,
    shipped: ShippedProgram,
    checkpoint: Path,
    trigger: str,
) -> Any:
    """Start the query of a program. The trigger is ``"continuous"`` or ``"available_now"``."""
    program = shipped.program()
    session.conf.set("spark.sql.shuffle.partitions", str(program.shuffle_partitions))
    # Spark broadcasts a larger program, and the process that creates the state cannot read that.
    context: Any = session.sparkContext._jsc  # noqa: SLF001
    context.sc().conf().set("spark.broadcast.UDFCompressionThreshold", str(2**31 - 1))
    # Spark looks Python's sinks up in the session that is active in this thread.
    jvm: Any = session._jvm  # noqa: SLF001
    jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
    source, sink = source_of(shipped), sink_of(shipped)
    session.dataSource.register(source)
    session.dataSource.register(sink)
    rows: DataFrame = (
        session.readStream.format(source.name()).option("checkpoint", str(checkpoint)).load()
    )
    for stage in range(1, program.plan.stages + 1):
        rows = rows.groupBy("grouping_key").transformWithState(
            TaskHost(shipped, stage), ROW_SCHEMA, "Append", "None"
        )
    writer = (
        rows.writeStream.format(sink.name())
        .outputMode("append")
        .queryName(program.plan.application_id)
        .option("checkpointLocation", str(checkpoint / SPARK_FOLDER))
    )
    if trigger == "available_now":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime="0 seconds")
    return writer.start()
