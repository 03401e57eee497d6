"""The figures of a report as an SVG: bars, one colour per system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks.report import Report
from benchmarks.workloads import WORKLOADS

WIDTH, HEIGHT, TOP, LEFT = 900, 300, 64, 16
GROUP_GAP = 24
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2")


class Bar(NamedTuple):
    """One value of one system."""

    system: str
    value: float


class Chart(NamedTuple):
    """Groups of bars under one title."""

    title: str
    unit: str
    groups: dict[str, list[Bar]]


def svg_from_report(report: Report) -> str:
    """Return a picture of throughput, CPU per record and latency."""
    charts = [chart for chart in _charts(report) if chart.groups]
    systems = list(
        dict.fromkeys(
            bar.system for chart in charts for bars in chart.groups.values() for bar in bars
        )
    )
    colours = {system: COLOURS[at % len(COLOURS)] for at, system in enumerate(systems)}
    height = HEIGHT * len(charts) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *_legend(colours),
    ]
    for at, chart in enumerate(charts):
        parts += [
            f'<g transform="translate(0 {40 + at * HEIGHT})">',
            *_drawn(chart, colours),
            "</g>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def _charts(report: Report) -> Iterator[Chart]:
    throughput: dict[str, list[Bar]] = {}
    cpu: dict[str, list[Bar]] = {}
    for each in report.measurements:
        title = f"{each.workload} {WORKLOADS[each.workload].title}"
        throughput.setdefault(title, []).append(Bar(each.system, each.records_per_second))
        # A system that takes a hundred times as much would flatten all others.
        if each.cpu_us_per_record < 200:
            cpu.setdefault(title, []).append(Bar(each.system, each.cpu_us_per_record))
    yield Chart("Throughput", "records/s", throughput)
    yield Chart("CPU time per record", "µs", cpu)
    latency = {
        "p50": [Bar(each.system, each.p50_ms) for each in report.latencies],
        "p99": [Bar(each.system, each.p99_ms) for each in report.latencies],
    }
    yield Chart("Latency at 200 records/s", "ms", latency if report.latencies else {})


def _legend(colours: dict[str, str]) -> Iterator[str]:
    for at, (system, colour) in enumerate(colours.items()):
        x = LEFT + at * 200
        yield f'<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="24">{escape(system)}</text>'


def _drawn(chart: Chart, colours: dict[str, str]) -> Iterator[str]:
    highest = max(bar.value for bars in chart.groups.values() for bar in bars) or 1.0
    count = sum(map(len, chart.groups.values()))
    width = min(80.0, (WIDTH - 2 * LEFT - GROUP_GAP * len(chart.groups)) / count)
    floor, room = HEIGHT - 30, HEIGHT - 30 - TOP
    title = f"{chart.title} ({chart.unit})"
    yield f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>'
    yield f'<line x1="{LEFT}" y1="{floor}" x2="{WIDTH - LEFT}" y2="{floor}" stroke="#888"/>'
    x = LEFT + GROUP_GAP / 2
    for name, bars in chart.groups.items():
        middle = x + width * len(bars) / 2
        yield (
            f'<text x="{middle:.1f}" y="{floor + 18}" text-anchor="middle">{escape(name)}</text>'
        )
        for bar in bars:
            tall = bar.value / highest * room
            yield (
                f'<rect x="{x + 2:.1f}" y="{floor - tall:.1f}" width="{width - 4:.1f}" '
                f'height="{tall:.1f}" fill="{colours[bar.system]}"/>'
            )
            yield (
                f'<text x="{x + width / 2:.1f}" y="{floor - tall - 4:.1f}" '
                f'text-anchor="middle" font-size="11">{bar.value:,.0f}</text>'
            )
            x += width
        x += GROUP_GAP
