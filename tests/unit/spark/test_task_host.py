from __future__ import annotations

import pytest

from headrace.errors import StreamsError
from headrace.runtime.planning.admission import MAX_BYTES
from headrace.spark.task_host import _MOST_BYTES, within_limit


def test_a_grouping_key_returns_no_more_than_spark_takes() -> None:
    rows = [(1, 2, 3, bytes(50)), (1, 2, 4, bytes(50)), (1, 2, 3, b"x")]

    assert [*within_limit(rows[:2], 100)] == rows[:2]
    with pytest.raises(StreamsError, match="A task makes more than 0 MB in one batch"):
        [*within_limit(rows, 100)]


def test_a_whole_batch_of_the_size_that_is_admitted_fits_one_grouping_key() -> None:
    assert 7 * MAX_BYTES < _MOST_BYTES < 2**31
