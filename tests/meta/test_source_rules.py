"""House rules on what the source may say, read from its syntax."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.meta.repository import (
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
