"""Arrow tables as Spark DataFrames."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrame", "dataframe_of"]


def dataframe_of(table: Any) -> DataFrame:
    """Return a DataFrame with the rows of an Arrow table, in the Spark session of this process."""
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    return session.createDataFrame(table)
