"""The application that several tests of the runtime run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.counting import Application


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    """An application that counts keys, with a log of its own."""
    started = Application(tmp_path)
    yield started
    started.close()
