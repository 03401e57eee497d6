from __future__ import annotations

from headrace.metrics import Histogram

ENDS = (1.0, 2.0, 5.0)


def test_a_value_is_in_the_first_bucket_whose_end_it_does_not_exceed() -> None:
    histogram = Histogram()

    histogram.add([5.0, 0.5, 1.0, 1.5, 7.0, 100.0], ENDS)

    assert histogram == Histogram([2, 1, 1, 2], 115.0)
    assert histogram.total == 6


def test_a_value_may_stand_for_several() -> None:
    histogram = Histogram()

    histogram.add([1.5], ENDS, 3)
    histogram.add([1.5, 9.0], ENDS)

    assert histogram == Histogram([0, 4, 0, 1], 15.0)


def test_histograms_are_added_bucket_by_bucket() -> None:
    one, other, empty = Histogram(), Histogram(), Histogram()
    one.add([0.5], ENDS)
    other.add([0.5, 3.0], ENDS)

    one.merge(other)
    one.merge(empty)
    empty.merge(other)

    assert one == Histogram([2, 0, 1, 0], 4.0)
    assert empty == other
