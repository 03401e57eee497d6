"""The one Spark of a process of tests."""

from __future__ import annotations


def stop_spark() -> None:
    """Stop Spark, but not Java."""
    from pyspark.sql import SparkSession  # most tests need none

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
