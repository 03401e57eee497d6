from __future__ import annotations

import pytest

from headrace.brokers.log import TopicPartition
from headrace.queries.http_names import offsets_from_text, text_from_offsets
from headrace.queries.problems import ProblemCode, QueryProblemError


def test_offsets_come_back_from_their_text() -> None:
    offsets = {TopicPartition("orders", 3): 10482, TopicPartition("a.b-c_d", 0): 0}

    text = text_from_offsets(offsets)

    assert text == "a.b-c_d:0:0,orders:3:10482"
    assert offsets_from_text(text) == offsets


def test_the_highest_offset_of_a_partition_counts() -> None:
    assert offsets_from_text("a:0:7,a:0:5") == {TopicPartition("a", 0): 7}


@pytest.mark.parametrize(
    "text", ["", "a:0", "a:0:-1", "a:0:1,", "a:x:1", "ü:0:1", "a:0:" + "9" * 30, "a:0:1," * 2_000]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(QueryProblemError) as caught:
        offsets_from_text(text)

    assert caught.value.code is ProblemCode.BAD_REQUEST
