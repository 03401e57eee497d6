"""The ledger: one line for each round, kept in the repository."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from chaos.contract import EXACTLY_ONCE

LEDGER = Path(__file__).with_name("ledger.jsonl")
LOAD = Path(__file__).with_name("load.jsonl")
"""Where `chaos.load` keeps its runs."""

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
HEADING = "to this table.\n"
_MATTERS = ("lost", "doubled", "torn")

WHAT_IS_CHECKED = (
    "results and their order, changelogs; torn batches by partition; offsets, on Kafka after 10 s",
    "and the stores as Spark keeps them",
    "and one transaction across topics and changelogs; offsets at once; open ends of changelogs",
    "and offsets and changelogs of every workload; what joins gave",
    "and leaks of 20 % and 100 MB in every round; what went back across a fault; all of read_back",
)
"""The checks of rounds, oldest first; each line includes all lines before it."""

CHECKS = len(WHAT_IS_CHECKED)
"""How many of these lines the rounds of this version check."""

_CHECKED_FROM_SEED = {0: 1, 140: 2, 150: 3}
"""The same for rounds that did not write it down."""


class FaultEntry(msgspec.Struct, frozen=True):
    """One fault."""

    kind: str
    detail: str
    second: float
    """When it came, counted from the start of the round."""
    recovery: float
    """Seconds from its end until all input that was there by then was processed."""
    starts: int
    """How often the application had to be started again."""


class RoundEntry(msgspec.Struct, frozen=True):
    """One round and its verdict."""

    seed: int
    commit: str
    """The version of the program; ends in ``+`` if it was changed since."""
    broker: str
    workload: str
    faults: list[FaultEntry]
    records: int
    """How many input records there were."""
    verdict: dict[str, int]
    """The number of errors by kind: all zero in a clean round."""
    problems: list[str] = []
    """Other problems: examples, slow recoveries, leaks, a disorderly end."""
    seconds: float = 0.0
    megabytes: float = 0.0
    """The most memory that the application held."""
    files: int = 0
    """The most files and connections that it had open."""
    mistake: str | None = None
    """The mistake that was built in on purpose."""
    guarantee: str = EXACTLY_ONCE
    """The guarantee of the application."""
    repeated: int = 0
    """How many results of replayed batches were there again, where that is allowed."""
    checks: int = 0
    """How many lines of `WHAT_IS_CHECKED` it looked at; 0: see `checked`."""
    grown_megabytes: float = 0.0
    """The least that a run held late, less the most that it held early; of all runs the most."""
    grown_files: int = 0
    """The same for files and connections."""
    compared: int | None = None
    """How many runs were long enough for that; None: see `has_compared`."""
    command: str = ""
    """The command that repeats it."""

    @property
    def checked(self) -> int:
        """Return how many lines of `WHAT_IS_CHECKED` it looked at."""
        levels = [level for seed, level in _CHECKED_FROM_SEED.items() if seed <= self.seed]
        return self.checks or max(levels)

    @property
    def has_compared(self) -> bool:
        """Return whether memory and files were compared; old entries have 0 if they were not."""
        if self.compared is None:
            return bool(self.grown_megabytes or self.grown_files)
        return self.compared > 0

    @property
    def is_clean(self) -> bool:
        """Return whether nothing was wrong."""
        return not any(self.verdict.values()) and not self.problems


def append(entry: RoundEntry, path: Path = LEDGER) -> None:
    """Add a round."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(entry) + b"\n")


def read(path: Path = LEDGER) -> Iterator[RoundEntry]:
    """Yield all rounds, oldest first."""
    if path.exists():
        for line in path.read_bytes().splitlines():
            yield msgspec.json.decode(line, type=RoundEntry)


def current_commit() -> str:
    """Return the version of the program that is tried."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True)
        return done.stdout.strip()

    # Files that rounds write do not change the tested program.
    own = (f":(exclude,top){path.relative_to(here.parent)}" for path in (LEDGER, LOAD, PAGE))
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", *own)
    return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")


def write_page(page: Path = PAGE) -> None:
    """Bring the table of the documentation up to date."""
    write_part(HEADING, summary(list(read())), page)


def write_part(heading: str, text: str, page: Path) -> None:
    """Replace what a page has between some words and the next section."""
    before, heading, after = page.read_text().partition(heading)
    _, section, rest = after.partition("\n## ")
    page.write_text(f"{before}{heading}\n{text}{section}{rest}")


def summary(entries: list[RoundEntry]) -> str:
    """Return what was found, as a page shows it."""
    exactly = [entry for entry in entries if entry.guarantee == EXACTLY_ONCE]
    at_least = [entry for entry in entries if entry.guarantee != EXACTLY_ONCE]
    lines = [_counted(exactly)]
    if slowest := sorted(fault.recovery for entry in entries for fault in entry.faults):
        median, worst = slowest[len(slowest) // 2], slowest[-1]
        lines.append(f"Recovery took {median:.1f} s in the middle, {worst:.1f} s at most.")
    lines.append(_checked_by_all(exactly))
    lines.append(_compared(entries))
    if at_least:
        again = sum(entry.repeated for entry in at_least)
        lines.append(f"At least once: {_counted(at_least)} {again:,} results were there again.")
    tables = (_check_table(exactly), _fault_table(exactly), _round_table(entries))
    return "\n".join([*lines, "", *chain(*([*table, ""] for table in tables))])


def _counted(entries: list[RoundEntry]) -> str:
    wrong = summed(entry.verdict for entry in entries)
    found = ", ".join(f"{count} {kind}" for kind, count in wrong.items() if kind in _MATTERS)
    return (
        f"{_faults_in(entries)} faults in {len(entries)} rounds with"
        f" {sum(entry.records for entry in entries):,} input records: {found or 'nothing yet'}."
    )


def _checked_by_all(entries: list[RoundEntry]) -> str:
    newest = [entry for entry in entries if entry.checked == CHECKS]
    if not newest:
        return "None of them had every check of today."
    return (
        f"{_faults_in(newest)} of them had every check of today, in {len(newest)} rounds since "
        f"version {newest[0].commit}."
    )


def _compared(entries: list[RoundEntry]) -> str:
    seeds = [str(entry.seed) for entry in entries if entry.has_compared]
    which = f": seeds {' '.join(seeds)}" if seeds else ""
    return f"{len(seeds)} of all {len(entries)} rounds compared memory and files{which}."


def _faults_in(entries: list[RoundEntry]) -> int:
    return sum(len(entry.faults) for entry in entries)


def _check_table(entries: list[RoundEntry]) -> list[str]:
    rows = []
    for level, text in enumerate(WHAT_IS_CHECKED, 1):
        own = [entry for entry in entries if entry.checked == level]
        rows.append((text, _faults_in(own), len(own)))
    return table(("what was looked at", "faults", "rounds"), rows)


def _fault_table(entries: list[RoundEntry]) -> list[str]:
    counts = Counter((each.kind, entry.broker) for entry in entries for each in entry.faults)
    brokers = sorted({entry.broker for entry in entries})
    rows = [
        (kind, *(counts[kind, broker] or "" for broker in brokers))
        for kind in sorted({kind for kind, _ in counts})
    ]
    return table(("fault", *brokers), rows)


def _round_table(entries: list[RoundEntry]) -> list[str]:
    rows = []
    for workload, broker in sorted({(_name_of(entry), entry.broker) for entry in entries}):
        own = [each for each in entries if (_name_of(each), each.broker) == (workload, broker)]
        faults = sum(len(entry.faults) for entry in own)
        unclean = [str(entry.seed) for entry in own if not entry.is_clean]
        seeds = " ".join(str(entry.seed) for entry in own)
        rows.append((workload, broker, seeds, faults, " ".join(unclean) or "none"))
    return table(("workload", "broker", "seeds", "faults", "seeds that were not clean"), rows)


def _name_of(entry: RoundEntry) -> str:
    is_usual = entry.guarantee == EXACTLY_ONCE
    return entry.workload if is_usual else f"{entry.workload}, {entry.guarantee}"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table, as a page has them."""
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


def summed(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Return what is counted in all."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)  # keeps what is zero
    return total
