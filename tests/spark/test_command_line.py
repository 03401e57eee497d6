"""The first minutes with the command line: an empty folder, a program, and every default."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

PROGRAM = """
from headrace import KafkaStreams, StreamsBuilder

builder = StreamsBuilder()
(
    builder.stream("lines", key=str, value=str)
    .flat_map_values(str.split, value=str)
    .group_by(lambda _, word: word, key=str)
    .count(materialized="counts")
    .to_stream()
    .to("word-counts")
)
app = KafkaStreams(builder.build(), application_id="words")
if __name__ == "__main__":
    raise SystemExit(app.run())
"""

HEADRACE = [sys.executable, "-c", "from headrace.cli.main import main; main()"]


def headrace(folder: Path, line: str, stdin: str = "") -> str:
    """Run a command as a shell would, and return what it wrote."""
    command = [*HEADRACE, *line.split()]
    out = folder / "out.txt"
    with out.open("w") as file:
        done = subprocess.run(
            command, cwd=folder, input=stdin, text=True, stdout=file, stderr=file, timeout=PATIENCE
        )
    said = out.read_text()
    out.unlink()
    assert done.returncode == 0, said
    return said


def test_words_are_counted_in_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(PROGRAM)
    headrace(tmp_path, "topics create lines")
    headrace(tmp_path, "produce lines", stdin="ann\thello world\nbob\thello\n")

    said = headrace(tmp_path, "run words.py --trigger available_now")

    words = f"consume word-counts --from-beginning -n 2 --timeout {PATIENCE:g}s --value-type long"
    counted = headrace(tmp_path, words)
    assert sorted(counted.splitlines()) == ["hello\t2", "world\t1"]
    changes = [line.partition(" INFO ")[2] for line in said.splitlines()]
    assert changes[0] == "Application 'words' went from CREATED to REBALANCING."
    assert "Application 'words' went from PENDING_SHUTDOWN to NOT_RUNNING." in changes
    assert changes[-1].startswith("not_running batch ")
    assert "" not in changes  # neither Spark nor py4j says a word


@pytest.mark.parametrize(
    ("command", "prefix"),
    [([*HEADRACE, "run", "words.py"], "Error: "), ([sys.executable, "words.py"], "")],
    ids=["headrace run", "python"],
)
def test_without_java_a_run_names_the_package_to_install(
    tmp_path: Path, command: list[str], prefix: str
) -> None:
    (tmp_path / "words.py").write_text(PROGRAM)
    headrace(tmp_path, "topics create lines")
    environment = {**os.environ, "PATH": ""}
    environment.pop("JAVA_HOME", None)

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (done.returncode, done.stderr) == (
        1,
        f"{prefix}Java is missing: none was found. Spark needs Java 17 or later. Install one and "
        "set `JAVA_HOME`, or put it on the path.\n",
    )
    changes = [line.partition(" INFO ")[2] for line in done.stdout.splitlines()]
    assert changes[-2] == "Application 'words' went from PENDING_ERROR to ERROR."
    assert changes[-1].startswith("error")
    assert "" not in changes  # every line is one of the log
