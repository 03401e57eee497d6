"""The trees that are compared: copies of this work tree and of a git revision.

A run takes minutes. Each tree is copied to a temporary folder first, so that an edit of the work
tree does not change the program half-way. `git archive` leaves no entry in the repository.
"""

from __future__ import annotations

import compileall
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from msgspec import Struct

from benchmarks.systems import ROOT, environment_of

PROGRAMS = "benchmarks/apps"
PARTS = ("src", PROGRAMS)
"""All that a measured program imports from the repository."""
LAST_LINES = 3
PROBE = """\
import importlib, json, sys
for name in ("headrace", *sys.argv[1:]):
    importlib.import_module(name)
ours = [name for name in sys.modules if name.split(".")[0] in ("headrace", "benchmarks")]
files = {name: getattr(sys.modules[name], "__file__", None) for name in ours}
print(json.dumps({name: file for name, file in files.items() if file}))
"""


class RevisionError(Exception):
    """A tree cannot be measured."""


class Revision(Struct):
    """A commit, and whether the measured tree differs from it."""

    commit: str
    subject: str
    is_changed: bool = False
    """The tree has changes in `PARTS` that are not committed."""

    def __str__(self) -> str:
        changed = " with uncommitted changes" if self.is_changed else ""
        return f"{self.commit[:10]}{changed} ({self.subject})"


def find_revision(name: str, root: Path = ROOT) -> Revision:
    """Return the commit that a git revision names.

    Raises:
        RevisionError: There is none.
    """
    parsed = _git(root, "rev-parse", "--verify", f"{name}^{{commit}}")
    if parsed.returncode:
        msg = (
            f"Git finds no commit {name!r} in {str(root)!r}: {_first_line(parsed.stderr)} "
            "`git log --oneline` lists commits, and `git fetch --all --tags` gets those of remotes."
        )
        raise RevisionError(msg)
    commit = parsed.stdout.decode().strip()
    subject = _git(root, "log", "-1", "--format=%s", commit).stdout.decode(errors="replace")
    return Revision(commit, subject.strip())


def export_revision(
    name: str, folder: Path, workloads: Sequence[str], root: Path = ROOT
) -> Revision:
    """Write the package and the programs of a git revision to a folder.

    Args:
        name: The revision, as git takes it.
        folder: Is created.
        workloads: The names of the programs that are measured.
        root: The repository.

    Raises:
        RevisionError: There is no such revision, or it lacks a program.
    """
    revision = find_revision(name, root)
    programs = ("run", *workloads)
    for path in (*PARTS, *(f"{PROGRAMS}/{program}.py" for program in programs)):
        if _git(root, "cat-file", "-e", f"{revision.commit}:{path}").returncode:
            msg = (
                f"Revision {name!r} is {revision} and has no {path!r}, which this comparison "
                f"runs. Choose a revision that has it: `git log --oneline -- {path}`."
            )
            raise RevisionError(msg)
    archive = _git(root, "archive", "--format=tar", revision.commit, "--", *PARTS)
    if archive.returncode:
        msg = f"Git cannot export {revision}: {_first_line(archive.stderr)}"
        raise RevisionError(msg)
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    _compile(folder)
    return revision


def copy_work_tree(folder: Path, root: Path = ROOT) -> Revision:
    """Write the package and the programs of the work tree to a folder, with what is uncommitted.

    Raises:
        RevisionError: The work tree has no commit.
    """
    revision = find_revision("HEAD", root)
    for part in PARTS:
        shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    status = _git(root, "status", "--porcelain", "--", *PARTS)
    revision.is_changed = bool(status.stdout)
    _compile(folder)
    return revision


def check_imports(folder: Path, workloads: Sequence[str]) -> Path:
    """Check that a program in a tree imports Headrace and itself from that tree alone.

    Python runs with the same interpreter, folder and environment as the measured program.

    Returns:
        The file of the package `headrace`.

    Raises:
        RevisionError: A module comes from elsewhere, or cannot be imported.
    """
    names = [f"benchmarks.apps.{name}" for name in ("run", *workloads)]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *names],
        cwd=folder,
        env=environment_of(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = "\n".join(done.stderr.splitlines()[-LAST_LINES:])
        msg = f"The programs in {str(folder)!r} cannot be imported:\n{words}"
        raise RevisionError(msg)
    files = {name: Path(file) for name, file in json.loads(done.stdout).items()}
    for name, file in sorted(files.items()):
        part = "src" if name.split(".")[0] == "headrace" else PROGRAMS
        if not file.resolve().is_relative_to((folder / part).resolve()):
            msg = (
                f"Module {name!r} comes from {str(file)!r} and not from {str(folder)!r}, so the "
                "comparison would measure another version. Check PYTHONPATH, PYTHONHOME and the "
                f"`.pth` files of {sys.executable!r}."
            )
            raise RevisionError(msg)
    return files["headrace"]


def _compile(folder: Path) -> None:
    """Compile a tree, so that no first run does it."""
    for part in PARTS:
        compileall.compile_dir(folder / part, quiet=2)


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, check=False
        )
    except FileNotFoundError:
        msg = "Git is missing. Install it, for example `apt install git`."
        raise RevisionError(msg) from None


def _first_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").splitlines()
    return f"{lines[0].removeprefix('fatal: ')}." if lines else "git gave no reason."
