"""Figures in Prometheus' text format."""

from __future__ import annotations

import pytest

from headrace.queries.server import metrics
from headrace.queries.server.metrics import Metric, Sample, ServerMetrics, metrics_text


def test_series_beyond_the_limit_are_one_sum_and_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics, "MOST_SERIES", 3)
    monkeypatch.setattr(metrics, "_warned", set())
    lag = Metric("lag", "gauge", "The lag.")
    samples = [Sample(10 + each, (("partition", str(each)),)) for each in range(5)]

    texts = [metrics_text({lag: samples}, ()) for _ in range(2)]

    assert texts[0].splitlines()[2:] == [
        'lag{partition="0"} 10',
        'lag{partition="1"} 11',
        'lag{partition="other"} 39',
    ]
    assert caplog.text.count("Metric lag has 5 series.") == 1


def test_queries_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_SERIES", 1)
    counted = ServerMetrics()

    for store in ("a", "b", "c"):
        counted.count(store, "keys", "OK", 0.1)

    assert [(dict(each.labels)["store"], each.value) for each in _totals(counted)] == [
        ("a", 1),
        ("other", 2),
    ]


def _totals(counted: ServerMetrics) -> list[Sample]:
    return counted.samples()[metrics.QUERY_TOTAL]
