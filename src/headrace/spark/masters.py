"""The Spark master of an application, and whether its workers are on this machine."""

from __future__ import annotations

import re

from pyspark import SparkContext

from headrace.config import StreamsConfig

_MASTER = "spark.master"


def with_master(config: StreamsConfig) -> StreamsConfig:
    """Return a config with its master, or that of the Spark that this process already runs."""
    running: SparkContext | None = SparkContext._active_spark_context  # noqa: SLF001
    master = master_of(config) if running is None else running.master
    return config.with_settings(spark={_MASTER: master})


def master_of(config: StreamsConfig) -> str:
    """Return the master of a config."""
    given = config.spark.get(_MASTER)
    if not given and config.num_stream_threads is not None:
        return f"local[{config.num_stream_threads},4]"
    # Spark retries no task on `local[N]`; a second number is the number of attempts.
    return re.sub(
        r"^local(?:\[([^,\]]+)\])?$",
        lambda found: f"local[{found[1] or '1'},4]",
        given or "local[*]",
    )


def is_on_this_machine(config: StreamsConfig) -> bool:
    """Return whether driver and workers share a machine: also on a ``local-cluster``."""
    return master_of(config).startswith("local")


def is_one_process(config: StreamsConfig) -> bool:
    """Return whether Spark has no separate executors, which may be lost or lack user modules."""
    return master_of(config).startswith("local[")
