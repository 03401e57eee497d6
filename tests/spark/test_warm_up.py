"""`headrace warm-up`, and that Java uses the archive when an application starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly("demo")

HEADRACE = [sys.executable, "-m", "headrace.cli.main"]
SECONDS = 300
"""How long a busy machine may take."""

START = """
import sys
from headrace import KafkaStreams, StreamsBuilder
from headrace.brokers import open_log

builder = StreamsBuilder()
builder.stream("in", key=str, value=str).group_by_key().count().to_stream().to("out")
streams = KafkaStreams(
    builder.build(), application_id="app", state_dir=sys.argv[1], trigger="available_now"
)
log = open_log(streams.config)
log.create_topic("in")
log.append([("in", 0, 1, b"k", b"v", None)])
log.close()
streams.start()
streams.await_termination("200s")
"""


def loaded_classes(folder: Path) -> tuple[int, int]:
    """Return how many classes the Java of Spark took from the archive, and how many from jars."""
    most = max(folder.glob("classes.*"), key=lambda path: path.stat().st_size).read_text()
    jars = len(re.findall(r"source: \S+\.jar$", most, re.MULTILINE))
    return most.count("source: shared objects file (top)"), jars


def test_java_takes_most_classes_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def warmed_up() -> dict[str, str | bool]:
        command = [*HEADRACE, "warm-up", "--output", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    first, second = warmed_up(), warmed_up()
    said = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path / "state")],
        env=os.environ | {"JDK_JAVA_OPTIONS": f"-Xlog:class+load:file={tmp_path}/classes.%p"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert (first["made"], second["made"]) == (True, False)
    assert Path(str(first["archive"])).parent == tmp_path / "cache" / "headrace"
    assert said.returncode == 0, said.stderr
    from_archive, from_jars = loaded_classes(tmp_path)
    assert from_archive > 10 * from_jars > 0
