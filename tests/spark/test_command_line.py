"""The first minutes with the command line: an empty folder, a program, and every default."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SECONDS = 100
"""How long a busy machine may take for a command."""

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
"""


def headrace(folder: Path, line: str, stdin: str = "") -> str:
    """Run a command as a shell would, and return what it wrote."""
    command = [sys.executable, "-c", "from headrace.cli.main import main; main()", *line.split()]
    out = folder / "out.txt"
    with out.open("w") as file:
        done = subprocess.run(
            command, cwd=folder, input=stdin, text=True, stdout=file, stderr=file, timeout=SECONDS
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

    counted = headrace(
        tmp_path, "consume word-counts --from-beginning -n 2 --timeout 5s --value-type long"
    )
    assert sorted(counted.splitlines()) == ["hello\t2", "world\t1"]
    changes = [line.partition(" INFO ")[2] for line in said.splitlines()]
    assert changes[0] == "Application 'words' went from CREATED to REBALANCING."
    assert "Application 'words' went from PENDING_SHUTDOWN to NOT_RUNNING." in changes
    assert changes[-1].startswith("not_running batch ")
    assert "" not in changes  # neither Spark nor py4j says a word
