"""A comparison of two revisions: its order, its medians, and that each side is the right tree."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from benchmarks import against
from benchmarks.against import (
    BASE,
    THIS,
    Comparison,
    Run,
    Side,
    Summary,
    compare,
    lines_of,
    order_of,
    summarise,
)
from benchmarks.bench import asked_for
from benchmarks.report import Failure, Machine, json_from_report
from benchmarks.revisions import (
    Revision,
    RevisionError,
    check_imports,
    copy_work_tree,
    export_revision,
    find_revision,
)
from benchmarks.throughput import Measurement

PROGRAM = "running_totals"


def run(number: int, side: str, rate: float, *problems: str) -> Run:
    values: dict[str, object] = dict.fromkeys(Measurement.__struct_fields__, 1.0)
    fields = {"memory_by_process_mb": {}, "problems": [*problems], "records_per_second": rate}
    return Run(number, Measurement(**{**values, "system": side, "workload": "a", **fields}))  # type: ignore[arg-type]  # by name


def comparison(*runs: Run) -> Comparison:
    sides = {
        THIS: Side("this", Revision("1" * 40, "Be fast", is_changed=True), "/tmp/this"),
        BASE: Side("main~3", Revision("2" * 40, "Be right"), "/tmp/base"),
    }
    machine = Machine(2, 24.0, "6.1", 0.25)
    return Comparison("2024-01-01", 10, 5, 2, machine, sides, [summarise("a", runs)], [*runs])


def test_the_order_of_the_sides_alternates() -> None:
    order = [side for number in (1, 2, 3, 4) for side in order_of(number)]

    assert order == [THIS, BASE, BASE, THIS, THIS, BASE, BASE, THIS]


def test_a_summary_has_medians_and_ratios() -> None:
    rates = {THIS: (90.0, 330.0, 120.0), BASE: (100.0, 110.0, 60.0)}
    runs = [
        run(number, side, rate)
        for side, of_side in rates.items()
        for number, rate in enumerate(of_side, 1)
    ]

    assert summarise("a", runs) == Summary("a", 120.0, 100.0, 1.2, [0.9, 3.0, 2.0])


def test_a_run_with_wrong_outputs_does_not_count() -> None:
    runs = [
        run(1, THIS, 900.0, "1 keys are missing"),
        run(1, BASE, 50.0),
        run(2, THIS, 200.0),
        run(2, BASE, 150.0),
    ]

    summary = summarise("a", runs)

    assert (summary.this, summary.base, summary.ratio) == (200.0, 100.0, 2.0)
    assert len(summary.round_ratios) == 1
    assert summarise("a", runs[:2]) == Summary("a", None, 50.0, None, [])


def test_the_tables_name_both_commits_and_every_run() -> None:
    report = comparison(run(1, THIS, 200.0), run(1, BASE, 100.0, "1 keys are missing"))
    report.failures.append(Failure("main~3, round 2", "a", "It ended.\nTraceback"))

    lines = [*lines_of(report)]

    assert lines[0].split(maxsplit=1) == [
        "this",
        "1111111111 with uncommitted changes (Be fast)",
    ]
    assert lines[1].split(maxsplit=1) == ["main~3", "2222222222 (Be right)"]
    assert lines[5].split() == ["a", "running", "totals", "200", "none", "none"]
    assert lines[8].split()[3:6] == ["1", "this", "200"]
    assert lines[9].endswith("1 keys are missing")
    assert lines[10] == "FAILED  a running totals, main~3, round 2: It ended."
    assert "one commit" in lines[11]
    assert not report.is_right()


def test_the_tables_note_a_busy_machine() -> None:
    report = comparison(run(1, THIS, 200.0), run(1, BASE, 100.0))

    report.machine.load_average = 2.0

    assert any("load 2.0" in line for line in lines_of(report))


def test_a_comparison_is_right_if_every_run_is_and_becomes_json() -> None:
    report = comparison(run(1, THIS, 200.0), run(1, BASE, 100.0))

    written = json.loads(json_from_report(report))

    assert report.is_right()
    assert written["summaries"][0]["ratio"] == 2.0
    assert written["sides"][BASE]["revision"]["commit"] == "2" * 40


def test_a_comparison_measures_running_totals_windows_and_re_keyed_totals_for_four_rounds() -> None:
    asked = asked_for(["--against", "HEAD~1"])

    assert (asked.against, asked.workloads, asked.rounds) == ("HEAD~1", ["a", "b", "d"], 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "2"], "--rounds needs --against"),
        (["--against", "x", "--rounds", "0"], "at least 1"),
        (["--against", "x", "--systems", "headrace"], "leave out --systems"),
        (["--against", "x", "--workloads", "a,f"], "leave out workload f"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        asked_for(arguments)

    assert message in capsys.readouterr().err


def measured(result: Comparison | BaseException, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Make a comparison end with a result; return the folders that it had trees in."""
    folders = []

    def measure(_asked: argparse.Namespace, trees: Path) -> Comparison:
        folders.append(trees)
        (trees / THIS).mkdir()
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(against, "_measure", measure)
    return folders


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (RevisionError("No such commit."), 1)]
)
def test_a_comparison_that_ends_early_deletes_its_trees(
    error: BaseException, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders = measured(error, monkeypatch)

    assert compare(asked_for(["--against", "x", "--results", str(tmp_path / "results")])) == code

    assert len(folders) == 1
    assert [*tmp_path.iterdir()] == []


def test_a_comparison_writes_its_tables_and_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = comparison(run(1, THIS, 200.0), run(1, BASE, 100.0))
    folders = measured(report, monkeypatch)

    assert compare(asked_for(["--against", "x", "--results", str(tmp_path)])) == 0

    tables = (tmp_path / "2024-01-01-against.txt").read_text()
    assert "2.00x" in tables
    assert tables in capsys.readouterr().out
    assert json.loads((tmp_path / "2024-01-01-against.json").read_bytes())["rounds"] == 2
    assert not folders[0].exists()


def git(folder: Path, *arguments: str) -> None:
    author = ["-c", "user.name=Alice", "-c", "user.email=alice@example.com"]
    unsigned = ["-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null"]
    subprocess.run(
        ["git", "-C", str(folder), *author, *unsigned, *arguments], check=True, capture_output=True
    )


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository whose first commit, tagged `bare`, lacks the programs."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    root = tmp_path / "repository"
    package = root / "src" / "headrace"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("VERSION = 1\n")
    git(tmp_path, "init", "--quiet", str(root))
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "Start the package")
    git(root, "tag", "bare")
    programs = root / "benchmarks" / "apps"
    programs.mkdir(parents=True)
    (programs / "run.py").write_text("import headrace\n")
    (programs / f"{PROGRAM}.py").write_text("import headrace\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "Add the programs")
    return root


@pytest.mark.tier("test")  # starts git
@pytest.mark.parametrize("name", ["no-such-branch", "bare..HEAD", "-n1", "HEAD:src"])
def test_a_revision_that_is_no_commit_is_refused(repository: Path, name: str) -> None:
    with pytest.raises(RevisionError, match=f"no commit '{name}'"):
        find_revision(name, repository)


@pytest.mark.tier("test")  # starts git
def test_a_revision_without_the_programs_is_refused(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(
        RevisionError, match=r"'bare' is .*Start the package.* no 'benchmarks/apps'"
    ):
        export_revision("bare", tmp_path / "base", [PROGRAM], repository)
    with pytest.raises(RevisionError, match=r"no 'benchmarks/apps/windowed_totals\.py'"):
        export_revision("HEAD", tmp_path / "base", [PROGRAM, "windowed_totals"], repository)

    assert not (tmp_path / "base").exists()


@pytest.mark.tier("test")  # starts git and Python
def test_each_side_imports_its_own_tree(repository: Path, tmp_path: Path) -> None:
    module = Path("src", "headrace", "__init__.py")
    (repository / module).write_text("VERSION = 2\n")
    this, base = tmp_path / "this", tmp_path / "base"

    exported = export_revision("HEAD", base, [PROGRAM], repository)
    copied = copy_work_tree(this, repository)

    assert (base / module).read_text() == "VERSION = 1\n"
    assert (this / module).read_text() == "VERSION = 2\n"
    assert (exported.subject, exported.is_changed) == ("Add the programs", False)
    assert (copied.commit, copied.is_changed) == (exported.commit, True)
    for folder in (this, base):
        assert check_imports(folder, [PROGRAM]) == folder / module


@pytest.mark.tier("test")  # starts git and Python
def test_a_tree_whose_programs_import_another_headrace_is_refused(
    repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "base"
    export_revision("HEAD", folder, [PROGRAM], repository)
    (folder / "src").rename(folder / "elsewhere")

    with pytest.raises(RevisionError, match="'headrace' comes from"):
        check_imports(folder, [PROGRAM])


@pytest.mark.tier("test")  # starts git and Python
def test_a_program_that_cannot_be_imported_is_refused(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "base"
    export_revision("HEAD", folder, [PROGRAM], repository)
    (folder / "benchmarks" / "apps" / "run.py").write_text("import no_such_module\n")

    with pytest.raises(RevisionError, match="No module named 'no_such_module'"):
        check_imports(folder, [PROGRAM])
