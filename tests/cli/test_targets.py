"""The application that a target names, and the error if it names none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headrace import KafkaStreams, StreamsBuilder, Topology
from headrace.cli.targets import TargetError, is_target, load_target
from tests.cli.conftest import Cli

TOP = """
from headrace import KafkaStreams, StreamsBuilder, Topology

def made(topic):
    builder = StreamsBuilder()
    builder.stream(topic, key=str, value=str).to("out")
    return builder

"""


def write(folder: Path, body: str, name: str = "program.py") -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(TOP + body)
    return name


def test_an_application_called_app_is_found_first(folder: Path) -> None:
    body = """
topology = made("t").build()
other = KafkaStreams(topology, application_id="other")
app = KafkaStreams(topology, application_id="mine")
"""

    target = load_target(write(folder, body))

    assert target.app is not None
    assert target.app.config.application_id == "mine"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('streams = KafkaStreams(made("t").build(), application_id="a")', KafkaStreams),
        ('topology = made("t").build()', Topology),
        ('builder = made("t")', StreamsBuilder),
        ('mine = KafkaStreams(made("t").build(), application_id="a")', KafkaStreams),
        ('plan = made("t").build()', Topology),
        ('first = made("t")\nagain = first', StreamsBuilder),
        ('app = "something else"\nmine = made("t")', StreamsBuilder),
        ('def create_app():\n    return made("t")', StreamsBuilder),
    ],
)
def test_without_a_name_the_application_is_found(folder: Path, body: str, kind: type) -> None:
    target = load_target(write(folder, body))

    assert isinstance(target.program, kind)
    assert "topics: [t]" in str(target.topology.describe())


def test_the_only_application_wins_over_the_builder_it_was_made_from(folder: Path) -> None:
    body = 'b = made("t")\nmine = KafkaStreams(b.build(), application_id="a")'

    assert isinstance(load_target(write(folder, body)).program, KafkaStreams)


def test_a_name_chooses_and_a_callable_is_called(folder: Path) -> None:
    body = """
class Shop:
    topology = made("in-class").build()

def factory():
    return made("from-factory")
"""
    file = write(folder, body)

    assert "in-class" in str(load_target(f"{file}:Shop.topology").topology.describe())
    assert "from-factory" in str(load_target(f"{file}:factory").topology.describe())


def test_a_module_can_be_named_instead_of_a_file(folder: Path) -> None:
    write(folder, 'app = made("t")', "shop/orders.py")
    (folder / "shop" / "__init__.py").write_text("")

    target = load_target("shop.orders:app")

    assert target.name == "orders"


def test_a_file_in_a_package_is_imported_as_part_of_it(folder: Path) -> None:
    write(folder, 'app = made("t")', "shop/orders.py")
    (folder / "shop" / "__init__.py").write_text("")

    load_target("shop/orders.py")

    assert "shop.orders" in sys.modules


def test_child_processes_can_import_the_program(folder: Path) -> None:
    load_target(write(folder, 'app = made("t")', "code/shop_app.py"))

    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(folder / "code")
    assert sys.modules["shop_app"].__file__ == str(folder / "code" / "shop_app.py")


def test_two_candidates_are_listed(folder: Path) -> None:
    file = write(folder, 'one = made("a")\ntwo = made("b")')

    with pytest.raises(TargetError, match=r"one \(StreamsBuilder\), two .*`program.py:one`"):
        load_target(file)


@pytest.mark.parametrize(
    ("body", "target", "said"),
    [
        ("x = 1", "program.py", "has no KafkaStreams, Topology or StreamsBuilder"),
        ('one = made("a")', "program.py:other", r"no 'other'. It has one \(StreamsBuilder\)"),
        ("x = 1", "program.py:x", "program.py:x is of type int"),
        (
            "def f():\n    return 3",
            "program.py:f",
            r"The result of program.py:f\(\) is of",
        ),
        ("x = 1", f"{'x' * 300}.py", "There is no file 'xxx"),
        ("x = 1", "x" * 300, "There is no module 'xxx"),
        ("x = 1", "missing.py", "no file 'missing.py'. In its folder there is program.py"),
        ("x = 1", "folder/missing.py", "In its folder there is no Python file"),
        ("x = 1", "no_such_module", "no module 'no_such_module' to import. Name a file"),
        ("x = 1", "no such", "no module 'no such' to import"),
    ],
)
def test_a_missing_target_is_named(folder: Path, body: str, target: str, said: str) -> None:
    write(folder, body)

    with pytest.raises(TargetError, match=said):
        load_target(target)


def test_a_file_named_without_its_ending_is_suggested(folder: Path) -> None:
    write(folder, "x = 1", "mine-own.py")

    with pytest.raises(TargetError, match=r"write `mine-own\.py`"):
        load_target("mine-own")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("queue.py", "hides Python's own module 'queue'"),
        ("typer.py", "hides the installed package 'typer'"),
        ("my-app.py", "cannot be imported"),
    ],
)
def test_a_file_that_workers_could_not_import_is_refused(
    folder: Path, name: str, said: str
) -> None:
    file = write(folder, 'app = made("t")', name)

    with pytest.raises(TargetError, match=said):
        load_target(file)


def test_an_error_of_the_program_shows_its_lines_and_none_of_ours(folder: Path, cli: Cli) -> None:
    file = write(folder, "def fails():\n    return undefined_name\n\nfails()")

    done = cli("describe", file)

    assert done.code == 1
    assert "program.py:10: NameError: name 'undefined_name' is not defined" in done.err
    assert "program.py:12  fails()" in done.err
    assert "importlib" not in done.err
    assert "targets.py" not in done.err


def test_an_error_of_a_topology_shows_the_line_that_built_it(folder: Path, cli: Cli) -> None:
    file = write(folder, 'made("t").stream("t2", key=str, value=str).to("")')

    done = cli("describe", file)

    assert "program.py:9: TopologyError:" in done.err
    assert "kstream.py" not in done.err


def test_an_error_of_syntax_shows_the_line(folder: Path, cli: Cli) -> None:
    file = write(folder, "def broken(:\n    pass")

    done = cli("describe", file)

    assert done.code == 1
    assert "program.py:9: SyntaxError" in done.err


def test_a_missing_import_of_the_program_is_its_own_problem(folder: Path, cli: Cli) -> None:
    write(folder, "import not_installed_anywhere")

    done = cli("describe", "program")

    assert done.code == 1
    assert "ModuleNotFoundError: No module named 'not_installed_anywhere'" in done.err


def test_a_program_that_exits_while_it_is_loaded_gets_the_fix(folder: Path) -> None:
    file = write(folder, "raise SystemExit(3)")

    with pytest.raises(TargetError, match="exit code 3"):
        load_target(file)


def test_an_error_in_a_factory_shows_the_users_line(folder: Path, cli: Cli) -> None:
    file = write(folder, "def create_app():\n    return 1 / 0")

    done = cli("describe", file)

    assert "program.py:10: ZeroDivisionError" in done.err


def test_a_traceback_begins_in_the_program(folder: Path, cli: Cli) -> None:
    file = write(folder, "1 / 0")

    done = cli("describe", file, "--traceback")

    first = done.err.split("File ")[1]
    assert "program.py" in first
    assert "ZeroDivisionError" in done.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app.py", True),
        ("a:b", True),
        ("dir/app", True),
        ("orders", False),
        ("a.b", False),
        ("headrace.examples.user_views.app", True),
        ("headrace.examples.none.app", False),
        ("headrace.examples.user_views.none", False),
        ("program.counts", False),
        ("shop.counts.app", True),
    ],
)
def test_a_word_is_a_target_or_an_application_id(folder: Path, text: str, expected: bool) -> None:
    write(folder, "1 / 0")
    write(folder, "1 / 0", "shop/counts/app.py")

    assert is_target(text) is expected
