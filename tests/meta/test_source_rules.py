"""House rules on what the source may say, read from its syntax."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from headrace.state.store_types.base import StoreKind
from tests.meta.repository import (
    PACKAGE,
    PAGES,
    ROOT,
    calls_of,
    imports_of,
    library_files,
    name_of,
    package_files,
    python_files,
    syntax_of,
)

CODE_FROM_DATA = {
    "pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle", "yaml", "joblib",
    "pickleSer", "_deserialize_from_bytes",
}  # fmt: skip
"""Names that create objects of any class from bytes, anywhere in a dotted name."""
MAY_PICKLE = {
    "src/headrace/spark/shipping.py": "the driver's own functions, sent to Spark's workers",
    "src/headrace/spark/blob_state.py": "how Spark's JVM hands over a column of bytes",
}
EVALUATES = {"eval", "exec", "compile", "builtins.eval", "builtins.exec", "__import__"}

# A replayed batch must give the same bytes, so these folders know neither clock nor chance.
DETERMINISTIC = ("engine", "processors", "state", "topology")
CHANCE_MODULES = {"random", "secrets", "time", "numpy.random"}
CHANCE_CALLS = {
    "hash", "os.urandom", "uuid1", "uuid4", "uuid.uuid1", "uuid.uuid4",
    "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.date.today",
}  # fmt: skip

# Elsewhere an import inside a function hides a dependency.
LATE_IMPORTS = {
    "src/headrace/brokers/opening.py": "keeps the Kafka client optional",
    "src/headrace/app.py": "keeps the runtimes optional",
    "src/headrace/queried_streams.py": "keeps the runtimes optional",
    "src/headrace/served_streams.py": "keeps the runtimes optional",
    "src/headrace/cli": "keeps the runtimes optional",
    "src/headrace/dsl": "streams, groupings and tables make each other",
    "src/headrace/queries/server/routes/arrow_rows.py": "keeps pyarrow optional",
    "src/headrace/testing/pytest_plugin.py": "every pytest session loads it",
}


KINDS = {*get_args(StoreKind), "timestamped"}
"""The names of the kinds of stores, and how some begin."""


def test_nothing_is_pickled_and_no_data_becomes_code() -> None:
    found = {
        name_of(path)
        for path in package_files()
        for _line, name in (*imports_of(syntax_of(path)), *calls_of(syntax_of(path)))
        if CODE_FROM_DATA.intersection(name.split("."))
    }

    assert found == MAY_PICKLE.keys()
    assert _found(package_files(), imports=set(), calls=EVALUATES) == []


def test_the_engine_knows_neither_the_clock_nor_chance() -> None:
    found = _found(package_files(*DETERMINISTIC), imports=CHANCE_MODULES, calls=CHANCE_CALLS)

    assert found == []


def test_a_check_finds_what_it_looks_for(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text("import time\nfrom random import choice\nx = hash('a')\ny = time.time()\n")

    tree = syntax_of(path)
    found = {*_forbidden(imports_of(tree), CHANCE_MODULES), *_forbidden(calls_of(tree), {"hash"})}

    assert found == {(1, "time"), (2, "random.choice"), (3, "hash")}


def test_only_the_opening_of_a_log_asks_whether_servers_are_set() -> None:
    asking = [
        name_of(path)
        for path in library_files()
        for node in ast.walk(syntax_of(path))
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("bootstrap_servers")
    ]

    assert asking == [
        "src/headrace/brokers/kafka/client_factory.py",
        "src/headrace/brokers/opening.py",
        "src/headrace/config/streams_config.py",
    ]


def test_only_the_types_of_stores_compare_the_kind_of_a_store() -> None:
    own = PACKAGE / "state" / "store_types"

    comparisons = [
        f"{name_of(path)}:{line} {text}"
        for path in package_files()
        if own not in path.parents
        for line, text in _comparisons_of_kinds(syntax_of(path))
    ]

    assert comparisons == []


def test_a_comparison_of_kinds_is_found() -> None:
    tree = ast.parse(
        "if kind == 'session' or 'window' in kind: pass\n"
        "if kind.startswith('timestamped') or kind in ('lru_map', OTHER): pass\n"
        "match kind:\n"
        "    case 'versioned_key_value': pass\n"
        "if options.kind == 'join' or name in ('a', 'b'): pass\n"
    )

    assert [line for line, _ in _comparisons_of_kinds(tree)] == [1, 1, 2, 2, 4]


def test_every_module_says_what_is_inside() -> None:
    silent = [name_of(path) for path in package_files() if not ast.get_docstring(syntax_of(path))]

    assert silent == []


def test_every_public_class_and_function_has_a_docstring() -> None:
    silent = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in library_files()
        for node in _public(syntax_of(path).body)
        if not ast.get_docstring(node)
    ]

    assert silent == []


def test_our_own_modules_are_imported_at_the_top() -> None:
    inside = [
        f"{name_of(path)}:{line} {name}"
        for path in package_files()
        for function in ast.walk(syntax_of(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for line, name in imports_of(function)
        if name.split(".")[0] == "headrace" and not _may_import_late(path)
    ]

    assert inside == []


def test_a_reminder_has_an_issue_number() -> None:
    words = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))
    reminder = re.compile(rf"\b(?:{words})\b(?!\(#\d+\)).*")

    reminders = {
        name_of(path): found
        for path in [*python_files(), *PAGES]
        if (found := reminder.findall(path.read_text()))
    }

    assert reminders == {}


def _comparisons_of_kinds(tree: ast.Module) -> list[tuple[int, str]]:
    """Return the line and the text of each comparison with the name of a kind of store."""
    found = []
    for node in ast.walk(tree):
        compared: Sequence[ast.expr] = ()
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            compared = node.args if node.func.attr in ("startswith", "endswith") else ()
        if any(map(_names_a_kind, compared)):
            found.append((compared[0].lineno, ast.unparse(node)))
    return sorted(found)


def _names_a_kind(compared: ast.expr) -> bool:
    members = compared.elts if isinstance(compared, ast.Tuple | ast.List | ast.Set) else [compared]
    values = {each.value for each in members if isinstance(each, ast.Constant)}
    return not values.isdisjoint(KINDS)


def _may_import_late(path: Path) -> bool:
    return name_of(path) in LATE_IMPORTS or name_of(path.parent) in LATE_IMPORTS


def _public(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not (
            node.name.startswith("_") or _is_overload(node)
        ):
            yield node


def _is_overload(node: ast.ClassDef | ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)


def _found(paths: Iterable[Path], *, imports: set[str], calls: set[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in paths
        for tree in [syntax_of(path)]
        for line, name in (
            *_forbidden(imports_of(tree), imports),
            *_forbidden(calls_of(tree), calls),
        )
    ]


def _forbidden(names: Iterable[tuple[int, str]], forbidden: set[str]) -> list[tuple[int, str]]:
    """Return the names that are forbidden themselves, or lie in a forbidden module."""
    return [
        (line, name)
        for line, name in names
        if name in forbidden or any(name.startswith(f"{module}.") for module in forbidden)
    ]
