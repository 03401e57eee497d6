"""Gives the tests of a run to its workers."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # no stubs


class SparkOnOneWorker(LoadScopeScheduling):  # type: ignore[misc]
    """Gives one worker all tests on Spark, and each worker any other test in turn.

    The worker with Spark helps with the other tests when it has done its own.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # the order of the tests is already right
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith("tests/spark/") else nodeid.partition("[")[0]
