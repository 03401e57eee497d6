"""The jars of a Kafka broker: Maven fetches them once into the user's cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

from headrace.errors import StreamsError

VERSION = "4.3.1"
"""The version of Kafka in `pom.xml`."""

_POM = Path(__file__).with_name("pom.xml")
_DOWNLOAD_SECONDS = 600


class MissingToolError(StreamsError):
    """Java or Maven is not installed."""


def jars() -> Path:
    """Return the folder with the broker's jars, and fetch them the first time.

    Raises:
        MissingToolError: Java or Maven is not installed.
        StreamsError: Maven could not fetch the jars.
    """
    _need("java", "openjdk-17-jre-headless")
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock"):
        if not are_fetched():
            _need("mvn", "maven")
            pom = folder / "pom.xml"
            pom.write_text(_POM.read_text())
            _run_maven(pom)
            _complete().touch()
    return folder / "target" / "lib"


def are_fetched() -> bool:
    """Return whether Maven has fetched all jars: it may have been killed half-way."""
    return _complete().exists()


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "headrace" / f"kafka-{VERSION}"


def _complete() -> Path:
    return _folder() / "complete"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Run a block in one process at a time: the processes of a test run share the jars."""
    with path.open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run_maven(pom: Path) -> None:
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), "package"]
    try:
        subprocess.run(  # noqa: S603
            command, check=True, timeout=_DOWNLOAD_SECONDS, capture_output=True, text=True
        )
    except subprocess.CalledProcessError as error:
        output = f"{error.stdout}{error.stderr}".strip()[-2000:]
        msg = f"Maven could not fetch Kafka {VERSION}. It says:\n{output}\n"
        raise StreamsError(msg, "Check that it reaches its repository.") from error
    except subprocess.TimeoutExpired as error:
        msg = f"Maven has not fetched Kafka {VERSION} within {_DOWNLOAD_SECONDS} s. Try again."
        raise StreamsError(msg) from error


def _need(tool: str, package: str) -> None:
    if shutil.which(tool) is None:
        msg = f"{tool} is missing. Install it, for example with `apt install {package}`."
        raise MissingToolError(msg)
