"""The tests of each tier: ``quick`` while typing, ``test`` at every push, ``nightly`` all.

A test belongs to the cheapest tier that can run it:

* ``quick``: tests of the folders in `QUICK` and of the examples, that start no process;
* ``nightly``: tests marked ``nightly("part")``;
* ``test``: all others, tests of a quick folder that are marked ``tier("test")``, and tests of
  examples whose names begin with ``test_end_to_end``: users run them without our marks.

``--tier`` chooses; a test whose full id is given runs in any tier. `CONTRIBUTING.md` has the rule
for new tests.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests import effort
from tests.kafka_broker import BrokerForAll

TIERS = ("quick", "test", "nightly")
QUICK = {"behaviour", "conformance", "meta", "property", "unit"}
"""The folders below `tests` whose tests are quick, unless they are marked."""

_HERE = Path(__file__).parent
_EXAMPLES = _HERE.parent / "src" / "headrace" / "examples"
_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"}
"""The events of Python's audit hooks for the start of a process."""


class ProcessInQuickTestError(Exception):
    """A test of the tier ``quick`` has started a process."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose tests."""
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=TIERS, default="test", help="run the tests of this tier")
    group.addoption("--part", default="", help="of the tier nightly, run this part alone")
    group.addoption("--thorough", action="store_true", help="try all examples of property tests")
    group.addoption("--shuffle", type=int, metavar="SEED", help="run tests in a random order")


def pytest_configure(config: pytest.Config) -> None:
    """Hold quick tests to their promise, and share one broker and one Spark between workers."""
    is_worker = hasattr(config, "workerinput")
    effort.is_thorough = config.getoption("--thorough")
    if config.getoption("--tier") == "quick":
        config.pluginmanager.register(_NoProcesses(), "headrace-no-processes")
    elif config.getoption("--tier") == "test" and config.getoption("-n", None) and not is_worker:
        config.pluginmanager.register(_SharedBroker(), "headrace-shared-broker")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Give one worker all tests on Spark, so that a run of the tier has one Spark."""
    if config.getoption("--tier") != "test":
        return None
    from tests.scheduling import SparkOnOneWorker  # pytest runs without xdist too

    return SparkOnOneWorker(config, log)


@pytest.hookimpl(tryfirst=True)  # pytest then brings tests together that share a fixture
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of the tier, and their order."""
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (chosen if _is_chosen(item, config) else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    if (seed := config.getoption("--shuffle")) is not None:
        chosen = _shuffled(chosen, seed)
    items[:] = sorted(chosen, key=_rank)


def tier_of(item: pytest.Item) -> str:
    """Return the cheapest tier that runs a test."""
    if item.get_closest_marker("nightly"):
        return "nightly"
    if item.path.is_relative_to(_EXAMPLES):
        return "test" if item.name.startswith("test_end_to_end") else "quick"
    folder = item.path.relative_to(_HERE).parts[0]
    return "quick" if folder in QUICK and not item.get_closest_marker("tier") else "test"


def _is_chosen(item: pytest.Item, config: pytest.Config) -> bool:
    if item.nodeid in config.invocation_params.args:
        return True
    if part := config.getoption("--part"):
        mark = item.get_closest_marker("nightly")
        return mark is not None and mark.args == (part,)
    return TIERS.index(tier_of(item)) <= TIERS.index(config.getoption("--tier"))


def _rank(item: pytest.Item) -> int:
    """Return when a test starts: those on Spark take longest, and quick ones fill up the end."""
    if item.path.is_relative_to(_HERE / "spark"):
        return 0
    return 2 if tier_of(item) == "quick" else 1


def _shuffled(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Return tests in another order: files, and the tests of each file.

    Tests of a file stay together, because they share what it takes long to make.
    """
    chance = random.Random(seed)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    groups = list(files.values())
    chance.shuffle(groups)
    for group in groups:
        chance.shuffle(group)
    return [item for group in groups for item in group]


class _SharedBroker:
    """Starts one broker for all workers, while they collect tests."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
        self._broker = BrokerForAll(self._folder)

    def pytest_report_header(self) -> str:
        return "All workers share one Kafka broker, which starts now, and one Spark."

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["broker"] = str(self._broker.description)

    def pytest_unconfigure(self) -> None:
        self._broker.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _NoProcesses:
    """Refuses to start a process while a test runs."""

    def __init__(self) -> None:
        self._is_running = False
        sys.addaudithook(self._audit)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._is_running = True
        try:
            return (yield)
        finally:
            self._is_running = False

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in _STARTS and self._is_running:
            msg = (
                f"A test of the tier quick starts a process ({event} {arguments[:2]}). Mark it "
                "with `pytest.mark.tier('test')`."
            )
            raise ProcessInQuickTestError(msg)
