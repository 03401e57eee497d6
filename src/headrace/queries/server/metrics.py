"""Figures of an instance in Prometheus' text format."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from headrace.metrics import Histogram

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""The upper ends of the buckets of `headrace_query_seconds`, in seconds."""
MOST_SERIES = 10_000
"""How many series one metric may have; the rest is one sum."""
OTHER = "other"
"""The labels of the sum of series that are too many."""


class Metric(NamedTuple):
    """A metric: its name, type and meaning."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    """The meaning, with Kafka's name where Kafka has one."""


class Sample(NamedTuple):
    """One figure of a metric."""

    value: float
    labels: tuple[tuple[str, str], ...] = ()
    suffix: str = ""


QUERY_TOTAL = Metric("headrace_query_total", "counter", "Queries that were answered.")
QUERY_SECONDS = Metric(
    "headrace_query_seconds", "histogram", "How long queries took, in seconds; without watches."
)
_log = logging.getLogger("headrace")


class ServerMetrics:
    """Counts the queries of one server. One thread, that of the event loop, uses it."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str, str], int] = {}
        self._seconds: dict[tuple[str, str], Histogram] = {}

    def count(self, store: str, kind: str, code: str, seconds: float | None) -> None:
        """Count a query.

        Args:
            store: The store, or an empty text if the query is about none or an unknown one.
            kind: The name of the route.
            code: ``OK``, or the code of the problem.
            seconds: How long it took; None: it is a watch, which lasts as long as its reader.
        """
        total = store, kind, code
        if total not in self._totals and len(self._totals) >= MOST_SERIES:
            total = OTHER, OTHER, OTHER
        self._totals[total] = self._totals.get(total, 0) + 1
        if seconds is None:
            return
        histogram = self._seconds.get(total[:2])
        if histogram is None:
            histogram = self._seconds[total[:2]] = Histogram()
        histogram.add([seconds], BUCKETS)

    def samples(self) -> dict[Metric, list[Sample]]:
        """Return the figures."""
        return {
            QUERY_TOTAL: [
                Sample(count, (("store", store), ("kind", kind), ("code", code)))
                for (store, kind, code), count in sorted(self._totals.items())
            ],
            QUERY_SECONDS: [
                sample
                for (store, kind), histogram in sorted(self._seconds.items())
                for sample in histogram_samples(
                    histogram, BUCKETS, (("store", store), ("kind", kind))
                )
            ],
        }


def histogram_samples(
    histogram: Histogram, ends: Sequence[float], labels: tuple[tuple[str, str], ...]
) -> Iterable[Sample]:
    """Yield the samples of a histogram: its buckets, the sum and the count."""
    count = 0
    for bound, each in zip((*ends, None), histogram.counts, strict=True):
        count += each
        text = "+Inf" if bound is None else f"{bound:g}"
        yield Sample(count, (*labels, ("le", text)), "_bucket")
    yield Sample(histogram.sum, labels, "_sum")
    yield Sample(count, labels, "_count")


def metrics_text(
    metrics: Mapping[Metric, Iterable[Sample]], labels: tuple[tuple[str, str], ...]
) -> str:
    """Return figures in Prometheus' text format.

    All of them have these labels.
    """
    lines = []
    for metric, samples in metrics.items():
        lines.append(f"# HELP {metric.name} {metric.help}")
        lines.append(f"# TYPE {metric.name} {metric.type}")
        for sample in _limited(metric, samples):
            named = ",".join(
                f'{name}="{_escaped(value)}"' for name, value in (*labels, *sample.labels)
            )
            lines.append(f"{metric.name}{sample.suffix}{{{named}}} {sample.value:.17g}")
    return "\n".join(lines) + "\n"


_warned: set[str] = set()


def _limited(metric: Metric, samples: Iterable[Sample]) -> list[Sample]:
    """Return at most `MOST_SERIES` samples; those that are too many are one sum."""
    found = [*samples]
    if len(found) <= MOST_SERIES or metric.type == "histogram":
        return found
    if metric.name not in _warned:
        _warned.add(metric.name)
        _log.warning(
            "Metric %s has %d series. Those beyond %d are one sum, with the labels %r.",
            *(metric.name, len(found), MOST_SERIES - 1, OTHER),
        )
    kept, rest = found[: MOST_SERIES - 1], found[MOST_SERIES - 1 :]
    labels = tuple((name, OTHER) for name, _ in rest[0].labels)
    return [*kept, Sample(sum(each.value for each in rest), labels)]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
