"""Writes the picture of the README: ``python -m tests.progress_picture``; ``make picture`` runs it.

The example of ``make demo`` runs on Spark, and the picture has the progress view after ten seconds.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from rich.console import Console

from headrace.app import KafkaStreams
from headrace.brokers.opening import open_log
from headrace.examples.catalogue import find_example
from headrace.examples.running import create_topics, fed, topics_of
from headrace.foreground import Snapshots, Tail, _written
from headrace.progress_view import LiveView, RunSnapshot

PAGE = Path(__file__).parents[1] / "docs" / "pictures" / "progress.svg"

_SECONDS = 10.0
_WIDTH = 110


def picture_of(snapshot: RunSnapshot) -> str:
    """Return the progress view of a snapshot, as an SVG."""
    console = Console(file=io.StringIO(), width=_WIDTH, record=True, force_terminal=True)
    console.print(LiveView(lambda: snapshot, console).renderable())
    svg = console.export_svg(title="make demo", unique_id="progress")
    # A page must load nothing from elsewhere, such as fonts.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def running_demo(seconds: float, folder: Path) -> RunSnapshot:
    """Run the example of ``make demo``; return its progress so long after its first batch."""
    example = find_example("orders")
    program, feed = example.module("app").app, example.module("feed")
    config = program.config.with_settings(state_dir=folder, embedded_path=folder / "log.db")
    app = KafkaStreams(program.topology, config)
    with closing(open_log(config)) as log:
        create_topics(log, topics_of(app, feed))
    tail = Tail(config, _written(app))
    snapshots = Snapshots(app, tail, threading.Event())
    with fed(app, feed), app, tail:
        while not snapshots.take().batch:
            app.await_termination(100)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            app.await_termination(100)
            snapshots.take()
        return snapshots.take()


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        snapshot = running_demo(_SECONDS, Path(folder))
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(picture_of(snapshot))
    sys.stdout.write(f"Wrote {PAGE}.\n")


if __name__ == "__main__":
    main()
