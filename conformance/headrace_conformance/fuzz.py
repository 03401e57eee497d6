"""Compares random programs on Headrace and Kafka: ``python -m headrace_conformance.fuzz``."""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.serdes.partitioner import partition_for_key
from headrace_conformance.compare import behaviour_differences, naming_differences
from headrace_conformance.grammar import Scenario, random_scenario
from headrace_conformance.run import run_partitioned, run_scenario
from headrace_conformance.shrink import shrunk

ROOT = Path(__file__).parent.parent
_ONLY_KAFKAS = ("specify a value serde", "specify a key serde", "null keyChangingChild")
"""Why Kafka refuses programs that Headrace runs: see docs/differences.md."""

RECORDED = ROOT / "fuzz.jsonl.gz"


class Oracle:
    """Kafka Streams in a process of its own: scenarios in, goldens out."""

    def __enter__(self) -> Oracle:
        self._process = subprocess.Popen(
            [str(ROOT / "java" / "run.sh"), "stream"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None, "opened as a pipe"
        self._process.stdin.close()
        self._process.wait()

    def golden(self, scenario: Scenario) -> dict[str, Any]:
        """Return what Kafka Streams does with a scenario."""
        assert self._process.stdin is not None, "opened as a pipe"
        assert self._process.stdout is not None, "opened as a pipe"
        self._process.stdin.write(json.dumps(scenario) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            msg = "The recorder ended. Build it with `make conformance`."
            raise RuntimeError(msg)
        golden: dict[str, Any] = json.loads(line)
        return golden


def differences(scenario: Scenario, golden: dict[str, Any]) -> list[str]:
    """Return how Headrace differs from a golden; nothing if they agree."""
    if not _can_be_compared(golden):
        return []
    try:
        result = run_scenario(scenario)
    except Exception:
        return [f"stopped: {traceback.format_exc()}"]
    found = behaviour_differences(result, golden)
    return found + [each for each in naming_differences(result, golden) if each not in found]


def _can_be_compared(golden: dict[str, Any]) -> bool:
    """Return whether the recorder ran the program, or refused it for a reason that we share.

    docs/differences.md lists the programs that only Kafka refuses.
    """
    reason = golden.get("build_error", {}).get("message", "")
    return "failed" not in golden and not any(why in reason for why in _ONLY_KAFKAS)


def recorded() -> Iterator[tuple[Scenario, dict[str, Any]]]:
    """Yield the random scenarios whose goldens are committed."""
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            yield entry["scenario"], entry["golden"]


def main(arguments: list[str] | None = None) -> int:
    """Run seeds and report the first difference of each kind, shrunk."""
    parser = argparse.ArgumentParser(prog="headrace_conformance.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1000, help="how many seeds")
    parser.add_argument("--most", type=int, default=5, help="stop after so many differences")
    parser.add_argument("--partitions", type=int, default=1, help="spread the input over so many")
    parser.add_argument("--record", action="store_true", help="write the goldens of the seeds")
    options = parser.parse_args(arguments)
    logging.disable()
    seeds = range(options.seed, options.seed + options.count)
    with Oracle() as oracle:
        if options.partitions > 1:
            return _compare_partitions(oracle, seeds, options.partitions)
        return _record(oracle, seeds) if options.record else _compare(oracle, seeds, options.most)


def _compare(oracle: Oracle, seeds: range, most: int) -> int:
    started, failed, refused, wrong = time.monotonic(), 0, 0, 0
    for done, seed in enumerate(seeds, 1):
        scenario = random_scenario(seed)
        golden = oracle.golden(scenario)
        failed += not _can_be_compared(golden)
        refused += "build_error" in golden
        if differences(scenario, golden):
            wrong += 1
            _report(oracle, scenario)
            if wrong >= most:
                break
        if done % 500 == 0:
            rate = done / (time.monotonic() - started)
            _print(f"{done} of {len(seeds)}, {wrong} differ, {rate:.0f}/s")
    _print(
        f"seeds {seeds.start} to {seed}: {done} programs, {wrong} differ, "
        f"{refused} refused by Kafka, {failed} not to be compared"
    )
    return wrong


def _compare_partitions(oracle: Oracle, seeds: range, partitions: int) -> int:
    """Compare programs on several partitions with one run of Kafka's driver for each of them.

    Kafka's driver has one partition. Where no record changes its key, each partition stands alone.
    """
    wrong, compared = 0, 0
    for seed in seeds:
        scenario = random_scenario(seed, keys_stay=True)
        goldens = [oracle.golden(part) for part in _parts(scenario, partitions)]
        if any("steps" not in golden or _ends_in_error(golden) for golden in goldens):
            continue
        compared += 1
        topics, dropped = run_partitioned(scenario, partitions)
        if dropped != sum(golden["dropped"] for golden in goldens) or _by_key([topics]) != _by_key(
            [golden["topics"] for golden in goldens]
        ):
            wrong += 1
            _print(
                f"{scenario['name']} differs on {partitions} partitions:\n{json.dumps(scenario)}"
            )
    _print(
        f"seeds {seeds.start} to {seeds.stop - 1} on {partitions} partitions: "
        f"{compared} programs compared, {wrong} differ"
    )
    return wrong


def _parts(scenario: Scenario, partitions: int) -> list[Scenario]:
    """Return the scenario of each partition: the same program, with the records it gets."""

    def partition(step: dict[str, Any]) -> int:
        key = step["key"]
        return 0 if key is None else partition_for_key(key.encode(), partitions)

    return [
        {**scenario, "steps": [s for s in scenario["steps"] if partition(s) == number]}
        for number in range(partitions)
    ]


def _ends_in_error(golden: dict[str, Any]) -> bool:
    return any("error" in step for step in golden["steps"])


def _by_key(runs: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the records of each topic and key, in order: a key is in one partition only."""
    found: dict[str, list[str]] = {}
    for topics in runs:
        for topic, records in topics.items():
            for record in records:
                key = record["key"]
                base = key["key"] if isinstance(key, dict) else key
                text = json.dumps({"headers": [], **record}, sort_keys=True)
                found.setdefault(f"{topic}/{base}", []).append(text)
    return found


def _report(oracle: Oracle, scenario: Scenario) -> None:
    stopped = differences(scenario, oracle.golden(scenario))[0].startswith("stopped")

    def still_differs(candidate: Scenario) -> bool:
        found = differences(candidate, oracle.golden(candidate))
        return bool(found) and found[0].startswith("stopped") == stopped

    small = shrunk(scenario, still_differs)
    _print(f"{scenario['name']} differs:")
    _print(json.dumps(small))
    for line in differences(small, oracle.golden(small))[:12]:
        _print(f"  {line}")


def _record(oracle: Oracle, seeds: range) -> int:
    with gzip.GzipFile(RECORDED, "wb", mtime=0) as out:
        for seed in seeds:
            scenario = random_scenario(seed)
            entry = {"scenario": scenario, "golden": oracle.golden(scenario)}
            out.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
    _print(f"{len(seeds)} goldens in {RECORDED.name}")
    return 0


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(min(main(), 1))
