from __future__ import annotations

from headrace.runtime.output.latencies import LATENCY_SECONDS, Latencies


def test_a_latency_is_the_time_from_the_timestamp_until_the_record_is_written() -> None:
    latencies = Latencies()
    latencies.add("out", [1_000, 9_000])
    latencies.add("out", [9_900])
    latencies.add("other", [11_000])

    found = latencies.histograms(10_000)

    counts = found["out"].counts
    assert found["out"].sum == 9.0 + 1.0 + 0.1
    assert [counts[LATENCY_SECONDS.index(end)] for end in (0.1, 1.0, 10.0)] == [1, 1, 1]
    assert (found["other"].total, found["other"].sum) == (1, 0.0)  # a timestamp of the future


def test_some_records_of_a_large_payload_stand_for_all() -> None:
    for size in (1, 255, 256, 257, 511, 512, 513, 10_000):
        latencies = Latencies()
        latencies.add("out", list(range(size)))

        found = latencies.histograms(100_000)["out"]

        assert found.total == size
        expected = sum(100 - each / 1_000 for each in range(size))
        assert abs(found.sum - expected) / expected < 0.001
