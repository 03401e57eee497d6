"""Compares what Headrace did with what Kafka Streams did.

Within a topic the order of records counts, between topics it does not. Values are equal if their
JSON text is: 1 is not 1.0. Entries of a store are compared sorted, rows of a query in order. Error
messages are for reading only; that there was an error counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any, TypeAlias

Recorded: TypeAlias = Mapping[str, Any]

_JAVA_HEADERS = frozenset(
    f"__streams.errors.{name}" for name in ("exception", "message", "stacktrace")
)
"""Headers of dead letters that carry Java class names, messages and stacks."""
_GLOBAL_TASK = "-1_"
"""How the id of the task begins that keeps global stores."""


def behaviour_differences(result: Recorded, golden: Recorded) -> list[str]:
    """Return how outputs, stores, drops and effects differ, in words."""
    refusal = _refusal_difference(result, golden)
    if refusal is not None:
        return [refusal] if refusal else []
    differences = list(_step_differences(result["steps"], golden["steps"]))
    if _failed(golden) or _failed(result):
        # The effect of the failing step on stores and counts is undefined.
        return differences
    if not differences:
        differences += _topic_differences("topics", result["topics"], golden["topics"])
    for name in sorted({*result["stores"], *golden["stores"]}):
        differences += _store_differences(
            f"store {name}", result["stores"].get(name), golden["stores"].get(name)
        )
    differences += _differences("dropped", _dropped(result), _dropped(golden))
    differences += _differences("effects", result.get("effects", {}), golden.get("effects", {}))
    return differences


def naming_differences(result: Recorded, golden: Recorded) -> list[str]:
    """Return how `describe()` and the generated names differ, in words."""
    refusal = _refusal_difference(result, golden)
    if refusal is not None:
        return [refusal] if refusal else []
    wanted, got = _describe_lines(golden), _describe_lines(result)
    if wanted != got:
        diff = unified_diff(wanted, got, "golden", "headrace", lineterm="", n=1)
        return ["\n".join(["describe:", *diff])]
    differences: list[str] = []
    for kind in ("processors", "stores"):
        differences += _differences(kind, result["names"][kind], golden["names"][kind])
    if not _failed(golden):
        differences += _internal_topic_differences(result["names"], golden["names"])
    return differences


def _internal_topic_differences(got: Recorded, wanted: Recorded) -> Iterator[str]:
    changelogs = {name for name in got["internal_topics"] if name.endswith("-changelog")}
    # A golden lists the topics that were written. Headrace's driver writes no changelogs: it can
    # only say how they would be called, so those that Kafka did not write are left out.
    unwritten = changelogs.difference(wanted["internal_topics"])
    names = [name for name in got["internal_topics"] if name not in unwritten]
    yield from _differences("internal topics", names, wanted["internal_topics"])


def _refusal_difference(result: Recorded, golden: Recorded) -> str | None:
    """Return what differs about refusing to build, empty if both refuse, None if neither does."""
    if "build_error" in golden:
        wanted = golden["build_error"]["message"]
        return "" if "build_error" in result else f"built, though Kafka says: {wanted}"
    if "build_error" in result:
        return f"not built: {_error_text(result['build_error'])}"
    return None


def _step_differences(got: list[Any], wanted: list[Any]) -> Iterator[str]:
    for index, (step, golden) in enumerate(zip(got, wanted, strict=False)):
        where = f"step {index}"
        if "error" in golden or "error" in step:
            if "error" not in step:
                yield f"{where}: no error, though Kafka says: {golden['error']['message']}"
            elif "error" not in golden:
                yield f"{where}: failed: {_error_text(step['error'])}"
            return
        if "store" in golden:
            yield from _store_differences(where, step.get("store"), golden["store"])
            continue
        yield from _topic_differences(where, step.get("out", {}), golden.get("out", {}))
        yield from _list_differences(f"{where}, rows", step.get("rows", []), golden.get("rows", []))
        yield from _differences(
            f"{where}, dropped", step.get("dropped", 0), golden.get("dropped", 0)
        )
    if len(got) != len(wanted):
        yield f"{len(got)} steps were done, in Kafka {len(wanted)}"


def _topic_differences(where: str, got: Recorded, wanted: Recorded) -> Iterator[str]:
    for topic in sorted({*got, *wanted}):
        yield from _list_differences(
            f"{where}, topic {topic}",
            [_comparable(record) for record in got.get(topic, [])],
            [_comparable(record) for record in wanted.get(topic, [])],
        )


def _store_differences(where: str, got: Any, wanted: Any) -> Iterator[str]:
    if got is None or wanted is None:
        yield from _differences(where, got, wanted)
        return
    yield from _differences(f"{where}, type", got["type"], wanted["type"])
    yield from _list_differences(
        where, sorted(got["entries"], key=_text), sorted(wanted["entries"], key=_text)
    )


def _list_differences(where: str, got: list[Any], wanted: list[Any]) -> Iterator[str]:
    texts, golden_texts = [_text(item) for item in got], [_text(item) for item in wanted]
    if texts != golden_texts:
        diff = unified_diff(golden_texts, texts, lineterm="", n=0)
        changed = [line for line in diff if line[:2] not in ("--", "++", "@@")]
        yield "\n    ".join([f"{where}: (- Kafka, + Headrace)", *changed])


def _differences(where: str, got: Any, wanted: Any) -> Iterator[str]:
    if _text(got) != _text(wanted):
        yield f"{where}: {_text(got)}, in Kafka {_text(wanted)}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _comparable(record: Mapping[str, Any]) -> dict[str, Any]:
    headers = [header for header in record.get("headers", []) if header[0] not in _JAVA_HEADERS]
    return {**record, "headers": headers}


def _dropped(recorded: Recorded) -> dict[str, int]:
    by_task = recorded["dropped_by_task"]
    # The Java driver runs every subtopology in one task, so only the sum of tasks can be compared.
    dropped = {"tasks": 0, "global": 0}
    for task, count in by_task.items():
        dropped["global" if task.startswith(_GLOBAL_TASK) else "tasks"] += int(count)
    return dropped


def _failed(recorded: Recorded) -> bool:
    return any("error" in step for step in recorded["steps"])


def _error_text(error: Mapping[str, Any]) -> str:
    causes = f" from {', '.join(error['causes'])}" if error["causes"] else ""
    return f"{error['type']}{causes}: {error['message']}"


def _describe_lines(recorded: Recorded) -> list[str]:
    # The class of a function that chooses a topic has no name worth comparing.
    return [
        re.sub(r"\(extractor class: .*\)", "(extractor class: LAMBDA)", line)
        for line in recorded["describe"]
    ]
