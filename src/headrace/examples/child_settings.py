"""Starts the processes of an example, and hands them its settings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.brokers.opening import embedded_path
from headrace.config import StreamsConfig
from headrace.errors import StreamsError

_PLAIN = (str, int, float)


@contextmanager
def settings_file(config: StreamsConfig) -> Iterator[Path]:
    """Write settings to a file for ``--command-config``, for the time of a block.

    Only this user can read it: it may hold passwords, which all users see in a command line.
    """
    settings = dict(config.properties())
    if not config.uses_kafka:
        settings["embedded.path"] = str(embedded_path(config))
    lines = [
        f"{json.dumps(name)} = {json.dumps(value)}\n"
        for name, value in settings.items()
        if isinstance(value, _PLAIN)
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "settings.toml"
        path.write_text("".join(lines), encoding="utf-8")
        yield path


def run_to_its_end(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command, which prints its own errors.

    Raises:
        StreamsError: It failed.
    """
    code = subprocess.run(command, env=environment, check=False).returncode  # noqa: S603
    if code:
        msg = f"A process of this example ended with code {code}. Its error is printed above."
        raise StreamsError(msg)
