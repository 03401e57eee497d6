"""Every example that is printed is executed: in the README, in the docs and in docstrings.

The Python blocks of a page run in order, in one namespace, as if they were one program; a text
block right after one is what it prints. An example of a docstring runs alone.
"""

from __future__ import annotations

import ast
import doctest
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from headrace.config import settings_reference
from tests.meta.repository import PACKAGE, PAGES, ROOT

FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: what its first line says, its text, and where it stands."""

    info: str
    text: str
    line: int
    follows: bool
    """Whether only blank lines lie between the block before and this one."""


class Example(NamedTuple):
    """An ``Example:`` section of a docstring, dedented."""

    path: Path
    owner: str
    text: str
    line: int


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    end = 0
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        yield Block(
            match["info"].strip(), match["text"], line, not text[end : match.start()].strip()
        )
        end = match.end()


def examples_of(path: Path) -> Iterator[Example]:
    """Yield the ``Example:`` sections of a module's docstrings."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            body = re.search(r"^Examples?:\n((?:[ ].*\n?|\n)+)", docstring or "", re.MULTILINE)
            if body:
                line = node.body[0].lineno
                yield Example(path, getattr(node, "name", path.stem), body[1], line)


def _name_in_package(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_programs_of_a_page_run_as_printed(
    page: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    module = _module(monkeypatch)
    printed = ""
    before = ""
    for block in blocks_of(page.read_text()):
        if block.info == "python":
            capsys.readouterr()
            _run(block.text, page, block.line, module)
            printed = capsys.readouterr().out
        elif block.info == "text" and before == "python" and block.follows:
            assert printed.rstrip() == block.text.rstrip(), f"{page.name}:{block.line}"
        before = block.info


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_program_of_a_page_escapes_execution(page: Path) -> None:
    infos = [block.info for block in blocks_of(page.read_text())]

    assert [info for info in infos if info.startswith("py") and info != "python"] == []


def test_the_page_of_settings_is_the_generated_one() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()

    assert page.endswith(f"## Every setting\n\n{settings_reference()}"), "Run `make fix`."


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=_name_in_package)
def test_the_examples_of_docstrings_run_as_printed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for example in examples_of(path):
        module = _module(monkeypatch)
        text = textwrap.dedent(example.text)
        if ">>>" in text:
            _run_session(text, example, module)
        else:
            _run(text, path, example.line, module)


def _module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module to run a program in; real, because type hints are looked up in it."""
    made = ModuleType("printed_example")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def _run_session(text: str, example: Example, module: ModuleType) -> None:
    parsed = doctest.DocTestParser().get_doctest(
        text, vars(module), example.owner, str(example.path), example.line
    )
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(parsed, out=report.append)
    assert report == []


def _run(program: str, path: Path, line: int, module: ModuleType) -> None:
    """Run a program so that a traceback shows the line of the page."""
    placed = "\n" * (line - 1) + program
    exec(compile(placed, str(path), "exec", dont_inherit=True), vars(module))
