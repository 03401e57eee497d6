"""`make audit` names vulnerabilities, and fails if a package could not be audited."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.audit import audit, locked_packages
from tests.meta.repository import ROOT

pytestmark = pytest.mark.tier("test")  # each test starts a process

FAKE = """
import pathlib, sys
report = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
asked = pathlib.Path(sys.argv[-1]).read_text()
assert asked == "a==1\\nb==2\\n", asked
{body}
"""


def fake(body: str) -> list[str]:
    """Return a command that does what pip-audit would do."""
    return [sys.executable, "-c", FAKE.format(body=body)]


def reporting(*dependencies: dict[str, Any]) -> list[str]:
    report = json.dumps({"dependencies": dependencies})
    return fake(f"report.write_text({report!r})")


@pytest.mark.parametrize(
    ("command", "problems"),
    [
        (
            reporting(
                {"name": "a", "version": "1", "vulns": []},
                {"name": "b", "version": "2", "vulns": []},
            ),
            [],
        ),
        (
            reporting(
                {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["1.1"]}]},
                {"name": "b", "version": "2", "vulns": [{"id": "CVE-2", "fix_versions": []}]},
            ),
            ["a 1 has CVE-1, fixed in 1.1", "b 2 has CVE-2, fixed in no version"],
        ),
        (
            reporting({"name": "a", "skip_reason": "not found"}),
            [
                "a could not be audited: not found",
                "b could not be audited: the report leaves it out",
            ],
        ),
        (
            fake("sys.exit('no connection to the service')"),
            ["No package could be audited: no connection to the service"],
        ),
    ],
)
def test_problems_are_named(command: list[str], problems: list[str]) -> None:
    assert audit({"a": "1", "b": "2"}, command) == problems


def test_every_version_of_every_locked_package_is_audited(tmp_path: Path) -> None:
    index = 'source = { registry = "https://pypi.org/simple" }'
    packages = [("a", "1", index), ("a", "2", index), ("b", "3", index)]
    packages.append(("headrace", "0", 'source = { editable = "." }'))
    lock = tmp_path / "uv.lock"
    lock.write_text(
        "".join(
            f'[[package]]\nname = "{name}"\nversion = "{version}"\n{source}\n'
            for name, version, source in packages
        )
    )

    assert locked_packages(lock) == [{"a": "1", "b": "3"}, {"a": "2"}]
    assert "pip-audit" in locked_packages(ROOT / "uv.lock")[0]
