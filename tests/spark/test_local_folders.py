"""Spark's local folders are deleted under a running application, as a cleaner of /tmp does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headrace import StreamsConfig
from headrace.brokers import open_log
from tests.spark.counting_application import SETTINGS, CountingApplication

pytestmark = [pytest.mark.usefixtures("java"), pytest.mark.nightly("faults")]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files. Its path is short enough for a socket in it."""
    with TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    "deleted",
    [
        pytest.param(["blockmgr-*", "spark-*"], id="spark"),
        pytest.param(["blockmgr-*/*"], id="blocks"),
        pytest.param(["headrace-*"], id="python"),
        pytest.param(["*"], id="all"),
    ],
)
def test_an_application_recovers_in_its_process_if_local_folders_are_deleted(
    deleted: list[str], temporary: Path, tmp_path: Path
) -> None:
    place = {"state.dir": str(tmp_path), "spark.local.dir": str(temporary)}
    config = StreamsConfig(application_id="cleaned", state_dir=tmp_path)
    with closing(open_log(config)) as log:
        application = CountingApplication({"application.id": "cleaned", **place, **SETTINGS}, log)
        environment = {**os.environ, "TMPDIR": str(temporary)}
        with application.alone(env=environment) as process:
            folders = [folder for pattern in deleted for folder in temporary.glob(pattern)]
            assert folders
            for folder in folders:
                shutil.rmtree(folder)

            for _ in range(3):
                application.give(10)
                application.assert_each_once()

            assert process.poll() is None
