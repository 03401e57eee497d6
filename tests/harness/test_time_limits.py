"""A test that hangs fails at its limit, and shows what each of its processes does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.meta.repository import ROOT

HANGING = """
import subprocess, sys, time

def test_hangs():
    program = "import time\\ndef waits_in_a_child(): time.sleep(600)\\nwaits_in_a_child()"
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        try:
            waits_here()
        finally:
            child.kill()

def waits_here():
    time.sleep(600)

def test_next():
    pass
"""


def test_the_stacks_of_all_processes_are_shown_and_the_next_test_runs(tmp_path: Path) -> None:
    path = tmp_path / "test_hanging.py"
    path.write_text(HANGING)
    options = ["-p", "tests.time_limits", "--timeout=3", f"--rootdir={tmp_path}"]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", os.devnull, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "1 failed, 1 passed" in done.stdout
    assert "longer than its limit of 3 s" in done.stdout
    own, child = done.stdout.split("-- process ")
    assert "waits_here" in own
    assert "time.sleep(600)" in child
    if os.geteuid() == 0:  # other users may look into their own children alone
        assert "waits_in_a_child (<string>" in child
