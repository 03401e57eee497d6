"""The results of a run under load, their criteria, and the file that keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from chaos.ledger import LOAD, PAGE, table, write_part
from chaos.processes import Usage

HEADING = "and to these lines.\n"
FLAT = 1.15
"""By how much two amounts of memory or files may differ and count as the same."""

_HEADS = (
    "version",
    "minutes",
    "records",
    "at most",
    "fed",
    "lag",
    "lag zero again after",
    "MB by quarter",
    "files by quarter",
    "verdict",
)
_QUARTERS = 4
_FEWEST = 4
"""How many samples a third needs to be compared."""


class Sample(NamedTuple):
    """Memory and files of the application at one moment without a restart."""

    second: float
    """Since the load began."""
    start: int
    """Which start of the application it was."""
    usage: Usage


class RestartEntry(msgspec.Struct, frozen=True):
    """One restart."""

    kind: str
    """How the application was ended."""
    second: float
    """When, counted from the beginning of the load."""
    seconds: float
    """From then until the lag was zero."""


class LoadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One run and its verdict."""

    commit: str
    """The version of the program; ends in ``+`` if it was changed since."""
    seed: int
    minutes: float
    maximum: float
    """Records a second, while there was a backlog."""
    rate: float
    """Records a second that were fed."""
    records: int
    """How many were fed in all, with the backlog."""
    lag_seconds: float
    """The lag in the middle of all moments without a restart, in seconds of feeding."""
    restarts: list[RestartEntry]
    megabytes: list[float]
    """Memory in each quarter of the time."""
    files: list[float]
    """Open files and connections in each quarter of the time."""
    feeder_cpu: float
    """The share of one core that feeding took."""
    verdict: dict[str, int]
    """The number of errors by kind: all zero in a clean run."""
    problems: list[str] = []
    """Other problems: a lag that stayed, growth, a disorderly end, examples."""

    @property
    def is_clean(self) -> bool:
        """Return whether nothing was wrong."""
        return not any(self.verdict.values()) and not self.problems


def append(entry: LoadEntry, path: Path = LOAD) -> None:
    """Add a run."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(entry) + b"\n")


def read(path: Path = LOAD) -> Iterator[LoadEntry]:
    """Yield all runs, oldest first."""
    for line in path.read_bytes().splitlines():
        yield msgspec.json.decode(line, type=LoadEntry)


def write_page(page: Path = PAGE) -> None:
    """Bring the lines of the documentation up to date."""
    write_part(HEADING, summary(list(read())), page)


def quarters(samples: Sequence[Sample], seconds: float) -> Iterator[tuple[float, float]]:
    """Yield the middle of megabytes and of files in each quarter of the time."""
    for _, each in groupby(samples, lambda sample: int(_QUARTERS * sample.second / seconds)):
        yield _middle(each)


def growth(samples: Sequence[Sample], seconds: float) -> Iterator[str]:
    """Yield what is not flat: from the second quarter to the last, and in any one start."""
    over_time = list(quarters(samples, seconds))
    if len(over_time) == _QUARTERS:
        yield from _more("In the last quarter there were", over_time[3], over_time[1])
    for start, each in groupby(samples, lambda sample: sample.start):
        own = list(each)
        third = len(own) // 3
        if third >= _FEWEST:
            early, late = _middle(own[:third]), _middle(own[-third:])
            yield from _more(f"In the last third of start {start} there were", late, early)


def _middle(samples: Iterable[Sample]) -> tuple[float, float]:
    usages = [sample.usage for sample in samples]
    return (
        round(median(usage.bytes for usage in usages) / 1e6),
        median(usage.files for usage in usages),
    )


def _more(when: str, late: tuple[float, float], early: tuple[float, float]) -> Iterator[str]:
    for name, after, before in zip(("MB", "files"), late, early, strict=True):
        if after > FLAT * before:
            yield f"{when} {after:,} {name}, after {before:,}."


def summary(entries: Sequence[LoadEntry]) -> str:
    """Return the runs, as a page shows them."""
    if not entries:
        return "No run yet.\n"
    return "\n".join([*table(_HEADS, map(_row, entries)), ""])


def _row(entry: LoadEntry) -> Sequence[object]:
    wrong = {kind: count for kind, count in entry.verdict.items() if count}
    return (
        entry.commit,
        f"{entry.minutes:g}",
        f"{entry.records:,}",
        f"{entry.maximum:,.0f}/s",
        f"{entry.rate:,.0f}/s",
        f"{entry.lag_seconds:.1f} s",
        ", ".join(f"{each.seconds:.0f} s ({each.kind})" for each in entry.restarts),
        ", ".join(f"{each:,.0f}" for each in entry.megabytes),
        ", ".join(f"{each:,.0f}" for each in entry.files),
        "clean" if entry.is_clean else f"{wrong or ''} {len(entry.problems)} problems",
    )
