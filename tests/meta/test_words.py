"""One name for each concept, in plain sentences: retired names and phrases do not come back.

See docs/architecture.md, Words.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.meta.repository import (
    EXAMPLES,
    PAGES,
    library_files,
    name_of,
    python_files,
    syntax_of,
)

RETIRED = {
    "_LASTING": "_PERMANENT",
    "_may_try_again": "_should_retry",
    "_spark_told": "_translating_errors",
    "Appended": "RawRecord",
    "BatchNote": "BatchResult",
    "BlobState": "BlobStore",
    "carry_out_reset": "execute_reset",
    "class_archive": "cds_archive",
    "carriers": "relay_keys",
    "check_seal": "check_sentinel",
    "check_unwritten": "check_markers_intact",
    "Connector": "ClientFactory",
    "end_at_what_is_there": "stop_at_current_ends",
    "end_transactions": "fence_producers",
    "epochs_id": "marker_topic_id",
    "epochs_name": "markers_name",
    "Expiring": "TtlMap",
    "fatal_told": "unwrap_fatal_error",
    "for_all": "whole_application",
    "globals_until": "global_load_ends",
    "HEAD_LEAF": "ROOT_PAGE",
    "held_from": "first_buffered_offsets",
    "HeldEntry": "CacheEntry",
    "HeldWrites": "RecordCache",
    "is_spread": "is_unpacked",
    "is_woken": "runs_every_batch",
    "last_words": "jvm_exit_reason",
    "LeafLimits": "PageLimits",
    "LeafMap": "BTreeMap",
    "LeafTree": "PageTree",
    "LeafWriter": "PageWriter",
    "lease": "lock",
    "Lease": "DirectoryLock",
    "left_at": "written_at",
    "lows": "first_keys",
    "load_memory": "load_task_state",
    "marker_in": "parse_marker",
    "NarrowBatches": "BatchSizeLimit",
    "note_taken": "skip_written",
    "Notes": "RunFiles",
    "OrderedState": "BTreeStores",
    "OutputSpool": "OutputBuffer",
    "Outputs": "TaskOutput",
    "Parcel": "Payload",
    "parcel": "payload",
    "parcels": "payloads",
    "PartLayout": "SubtopologyLayout",
    "PartitionNote": "PartitionResult",
    "parts_held_up": "subtopologies_with_buffers",
    "parts_upstream": "upstream_ids",
    "PASSING": "RETRIABLE",
    "pieces_of": "split_count",
    "plan_of": "plan_topology",
    "PlannedPart": "PlannedSubtopology",
    "PlannerNote": "PlannerStatus",
    "Refusals": "RefusedRecords",
    "seal_markers": "commit_sentinel",
    "some_at_a_time": "chunks",
    "SparkFiles": "SparkBatchLog",
    "SparkPlan": "ExecutionPlan",
    "StoreData": "StoreBackend",
    "SubTopology": "Subtopology",
    "TaskMemory": "TaskState",
    "TaskPlace": "TaskPlacement",
    "undelivered": "delivery_error",
    "untaken": "delivery_timeout_error",
    "Wake": "TaskCall",
    "without_those_ahead": "limit_inputs_ahead",
}
"""Names that no Python file of the project uses any more, and the ones that took their place."""

RETIRED_BELOW = {
    "src/headrace": {
        "Head": "StampedRecord",
        "Input": "InputRecords",
        "Leaf": "LeafPage",
        "NEVER": "MAX_MS",
        "Piece": "SplitPartition",
        "SomeOutputs": "OutputChunk",
        "TRANSIENT": "NOT_READY",
        "_NEVER": "MAX_MS",
        "_PASSING": "_RETRIABLE",
        "_go_on": "a verb for the work",
        "_place": "what it describes",
        "carrier": "relay_key",
        "introduce": "fetch_metadata",
        "left_out": "skipped",
        "said": "describe_error",
        "settle": "resolve",
        "patience_ms": "timeout_ms",
        "place": "what it is",
        "places": "what they are",
        "settled": "call_with_retries",
        "showing": "show_progress",
        "told": "a noun",
        "touched": "dirty, or merged",
    },
    "chaos": {
        "_tell": "a verb for the work",
        "place": "what it is",
        "places": "what they are",
        "tell": "show",
    },
    "src/headrace/brokers/kafka/error_translation.py": {"translated": "streams_error_from"},
    "src/headrace/cli": {"Place": "CommandEntry"},
    "src/headrace/clients": {"_give_up": "_release_partitions", "_tell": "_notify"},
    "src/headrace/engine": {
        "Inputs": "PartitionGroup",
        "memory": "task_state",
    },
    "src/headrace/runtime": {
        "Layout": "CheckpointLayout",
        "Reading": "Split",
        "Written": "TopicRecords",
        "generation": "leader_epoch",
        "leave": "write",
        "memory": "task_state",
        "quiet": "is_drained",
        "starts": "start_overrides",
    },
    "src/headrace/runtime/btree": {
        "Node": "IndexPage",
        "_groups": "_keys_by_prefix",
        "cut": "split_evenly",
        "fresh": "inserted",
    },
    "src/headrace/state": {
        "Held": "CachedValue",
        "_held": "_cached",
        "held": "cached",
        "held_at": "cached_at",
    },
    "src/headrace/state/maps.py": {"_groups": "_keys_by_prefix"},
    "src/headrace/runtime/checkpoint": {"part": "subtopology", "parts": "subtopologies"},
    "src/headrace/runtime/plan": {"part": "subtopology", "parts": "subtopologies"},
    "src/headrace/runtime/planning": {"Position": "BatchBoundary"},
    "src/headrace/runtime/tasks": {
        "more": "with_more",
        "part": "subtopology",
        "parts": "subtopologies",
    },
    "src/headrace/spark": {
        "Layout": "CheckpointLayout",
        "Position": "BatchBoundary",
        "Reading": "Split",
        "generation": "leader_epoch",
        "_tell": "_write_control",
        "leave": "write",
        "part": "subtopology",
        "quiet": "is_drained",
    },
}
"""Retired names that are ordinary words elsewhere, by the beginning of the paths without them."""

RETIRED_PARTS = {
    "src": {
        r"carriers?": "relay_key",
        "go_on": "a verb for the work",
        r"leaf_(map|tree)": "btree",
        "last_words": "the end of what",
        r"leases?": "lock",
        r"(?<!dead_)letters?": "dead_letter",
        r"parcels?": "payload",
        "patience": "timeout",
        r"seal(s|ed)?": "sentinel",
        "spools?": "output_buffer",
        "told": "a noun",
    },
    "benchmarks": {"told": "a noun"},
    "chaos": {
        r"(?<!dead_)letters?": "dead_letter",
        "seal(s|ed)?": "sentinel",
        "told": "a noun",
    },
    "conformance": {"told": "a noun"},
    "tests": {"seal(s|ed)?": "sentinel", "told": "a noun"},
}
"""Patterns of words that no name contains, such as `letter` in `first_letter`, by folder."""

PLAIN = ("benchmarks", "chaos", "conformance", "src", "tests")
"""The folders of Python files whose prose is checked, besides all pages."""

FORBIDDEN = re.compile(
    r"\b(?:told|anew|at\s+a\s+venture|go(?:es|ing)?\s+on|went\s+on|(?:tries|tried)\s+again"
    r"|(?:does|done)\s+again|stands?\s+for|lets?\s+go\s+of|puts?\s+out)\b",
    re.IGNORECASE,
)
"""Phrases for which there is an ordinary verb, such as retry, resume, replay, expel, report."""

NO_ACTOR = re.compile(
    r"(?:^|[.!?:]\s|\n\s*\n)[\s>*-]*"
    r"((?:Who|Nobody|Somebody|Everybody|That\s+which)\s+\w+"
    r"|What\s+(?:is|are|was|were|has|have|had|can|cannot|may|might|must|should|will|would|does"
    r"|do|did|came|comes|goes|went|follows|happens|happened|runs|ran|fails|failed|passes|passed"
    r"|takes|took|makes|made|shows|differs|remains|stays|belongs|expires|expired|begins|began"
    r"|an?|the|all|every|each|another|its"
    r"|ends|ended|stands|lies|matters|needs|becomes|became|writes|reads|waits|never|no|only))\b"
    r"[^.?!]*(?:[.!]|$)"
)
"""A sentence, but no question, whose subject is no actor."""

OPENS_WITHOUT_OBJECT = re.compile(
    r"(?:How|Lets?|Says?|Tells?|That|What|When|Where|Whether|Which|Who|Why)\b"
)
"""A docstring that neither says what to do, as "Return whether …", nor names a thing."""

_OPENING = r"\b(?:Who|What|Nobody|Somebody|Everybody|That which)\b"
_STRINGS = {tokenize.STRING}
if sys.version_info >= (3, 12):
    _STRINGS.add(tokenize.FSTRING_MIDDLE)
_ENDS_A_STATEMENT = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def test_no_file_uses_a_retired_name() -> None:
    uses = [
        f"{name_of(path)}:{token.start[0]} {token.string} (use {retired[token.string]})"
        for path in python_files()
        if (retired := _retired_in(name_of(path))) and _any_of(tuple(retired)).search(_text(path))
        for token in _tokens(_text(path))
        if token.type == tokenize.NAME and token.string in retired
    ]

    assert uses == []


def test_no_name_contains_a_retired_word() -> None:
    uses = [
        f"{name_of(path)}:{token.start[0]} {token.string} (use {new})"
        for path in python_files()
        for word, new in _retired_parts_in(name_of(path)).items()
        if re.search(word, _text(path), re.IGNORECASE)
        for token in _tokens(_text(path))
        if token.type == tokenize.NAME and _has_part(token.string, word)
    ]

    assert uses == []


@pytest.mark.parametrize("name", ["_error_told", "ErrorTold", "TOLD", "toldBefore"])
def test_a_retired_word_in_a_name_is_found(name: str) -> None:
    assert _has_part(name, "told")
    assert not _has_part(name.lower().replace("told", "untold"), "told")


def test_prose_uses_no_forbidden_phrase() -> None:
    files = [path for path in python_files() if name_of(path).startswith(PLAIN)]
    # The table of settings is generated from the package.
    pages = [page for page in PAGES if page.name != "settings.md"]

    found = [
        f"{name_of(path)}:{line} {phrase!r}"
        for path in [*files, *pages]
        for line, phrase in _forbidden_in(path)
    ]
    assert found == []


def test_a_docstring_of_the_package_opens_with_a_verb_or_a_noun() -> None:
    opening = re.compile(r'"""(?:What|Let|Say|Take note)\b')

    found = [
        f"{name_of(path)}:{number} {line.strip()}"
        for path in library_files()
        for number, line in enumerate(_text(path).splitlines(), 1)
        if opening.search(line)
    ]

    assert found == []


def test_a_docstring_of_a_module_class_or_function_opens_with_a_verb_or_a_noun() -> None:
    found = [
        f"{name_of(path)}:{node.body[0].lineno} {docstring.splitlines()[0]}"
        for path in python_files()
        if path.parent.parent != EXAMPLES  # their names and texts are for users to copy
        for node in ast.walk(syntax_of(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if (docstring := ast.get_docstring(node)) and OPENS_WITHOUT_OBJECT.match(docstring)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("The broker is told.", "told"),
        ("The task goes\non.", "goes on"),
        ("# It is tried again", "tried again"),
        ("Who leads writes.", "Who leads"),
        ("It ends. What was read is gone.", "What was"),
        ("Args:\n    topic: What is read.", "What is"),
        ("Nobody leads", "Nobody leads"),
        ("Everybody reads", "Everybody reads"),
        ("What a store saves.", "What a"),
    ],
)
def test_a_forbidden_phrase_is_found(text: str, phrase: str) -> None:
    assert [found for _, found in _phrases_in(1, text)] == [phrase]


@pytest.mark.parametrize(
    "text",
    [
        "What is a task?",
        "What you get: a value.",
        "The leader writes what was read.",
        "Try again with `--yes`.",
        "It waits on and on.",
    ],
)
def test_plain_prose_has_no_forbidden_phrase(text: str) -> None:
    assert list(_phrases_in(1, text)) == []


def _retired_in(name: str) -> dict[str, str]:
    """Return the names that a file may not use, with their replacements."""
    below = [names for folder, names in RETIRED_BELOW.items() if name.startswith(folder)]
    return {old: new for names in (RETIRED, *below) for old, new in names.items()}


def _retired_parts_in(name: str) -> dict[str, str]:
    """Return the patterns of words that names of a file may not contain, with replacements."""
    if name.startswith("src/headrace/examples"):
        return {}  # their names are of users, as in the documents
    below = [words for folder, words in RETIRED_PARTS.items() if name.startswith(folder)]
    return {old: new for words in below for old, new in words.items()}


@cache
def _has_part(name: str, pattern: str) -> bool:
    """Return whether a name, in snake case or camel case, contains a word or words."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return re.search(rf"(?:^|_)(?:{pattern})(?:_|$)", snake) is not None


@cache
def _any_of(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(words)})\b")


@cache
def _text(path: Path) -> str:
    return path.read_text()


@cache
def _tokens(text: str) -> tuple[tokenize.TokenInfo, ...]:
    return tuple(tokenize.generate_tokens(io.StringIO(text).readline))


def _forbidden_in(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each forbidden phrase in the prose of a file."""
    text = _text(path)
    if path.suffix == ".md":
        yield from _phrases_in(1, _without_code_and_headings(text))
    elif FORBIDDEN.search(text) or re.search(_OPENING, text):
        for line, prose in _prose_of(path):
            yield from _phrases_in(line, prose)


def _prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield comments, docstrings and messages; tests quote messages of the package in strings."""
    is_test, last = name_of(path).startswith("tests/"), tokenize.NEWLINE
    for token in _tokens(_text(path)):
        is_message = token.type in _STRINGS and not is_test
        is_docstring = token.type == tokenize.STRING and last in _ENDS_A_STATEMENT
        if is_message or is_docstring or token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"""^(?:#|[a-zA-Z]*["']+)\s*""", "", token.string)
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            last = token.type


def _phrases_in(line: int, text: str) -> Iterator[tuple[int, str]]:
    found = [(each.start(), each[0]) for each in FORBIDDEN.finditer(text)]
    found += [(each.start(1), each[1]) for each in NO_ACTOR.finditer(text)]
    for start, phrase in sorted(found):
        yield line + text.count("\n", 0, start), " ".join(phrase.split())


def _without_code_and_headings(page: str) -> str:
    """Return a page with blank lines in place of code and headings."""
    page = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), page, flags=re.M | re.S)
    return re.sub(r"^#.*$", "", page, flags=re.MULTILINE)
