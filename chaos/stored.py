"""Reads the contents of an application's stores from its state, not from its topics.

``python -m chaos.stored WORKLOAD SETTINGS`` prints that of an application that has ended, whose
settings are in a file, as JSON: by store, pairs of a changelog's key in hexadecimal and a value.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from chaos.contract import Stores, Workload
from chaos.supervisor import ROOT
from chaos.workloads import WORKLOADS
from headrace import KafkaStreams, ValueAndTimestamp, Windowed
from headrace.brokers import open_log
from headrace.engine.task import Task
from headrace.home import ApplicationHome
from headrace.runtime.checkpoint.layout import read_layout
from headrace.runtime.in_process import tasks_in
from headrace.runtime.plan import plan_topology
from headrace.runtime.program import make_program
from headrace.spark.session import open_session
from tests.spark.stored import blobs_in

_NO_SEQUENCE = bytes(4)
_SECONDS = 120


def stores_of(workload: Workload, settings: Path) -> Stores:
    """Return what the stores of an application hold that has ended.

    Args:
        workload: The workload that ran.
        settings: The file with its settings.
    """
    command = [sys.executable, "-m", "chaos.stored", workload.name, str(settings)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=_SECONDS
    )
    printed = json.loads(done.stdout.splitlines()[-1])
    return {
        store: {bytes.fromhex(key): value for key, value in pairs}
        for store, pairs in printed.items()
    }


def contents(tasks: Iterable[Task], store: str) -> dict[bytes, Any]:
    """Return what a store holds in all its tasks, by the keys its changelog has.

    Args:
        tasks: Those that have the store.
        store: Its name.
    """
    return {
        _changelog_key(key): value.value if isinstance(value, ValueAndTimestamp) else value
        for task in tasks
        for key, value in task.stores[store].all()
    }


def _changelog_key(key: Any) -> bytes:
    if isinstance(key, Windowed):
        return bytes(key.key.encode() + key.window.start.to_bytes(8, "big") + _NO_SEQUENCE)
    return bytes(key.encode())


def _read(workload: Workload, settings: Path) -> Stores:
    given = json.loads(settings.read_text())
    config = KafkaStreams(workload.topology(), given, **workload.settings).config
    with closing(open_log(config)) as log:
        checkpoint = ApplicationHome.of(config, log.cluster_id()).checkpoint
    layout = read_layout(config.require_application_id(), checkpoint)
    assert layout is not None, "it ran"
    program = make_program(
        plan_topology(workload.topology(), config),
        config,
        layout,
        partition_counts={},
        run_directory="",
        leader_epoch=0,
    )
    session = open_session(config, checkpoint / "reading.log")
    blobs = blobs_in(checkpoint, session, program.plan.stages)
    session.stop()
    return {
        store: contents(tasks_in(blobs, program, layout, store), store) for store in workload.stores
    }


if __name__ == "__main__":
    stored = _read(WORKLOADS[sys.argv[1]], Path(sys.argv[2]))
    print(
        json.dumps(
            {
                store: [(key.hex(), value) for key, value in kept.items()]
                for store, kept in stored.items()
            }
        )
    )
