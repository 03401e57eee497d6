"""Checks every package of uv.lock for known vulnerabilities: `make audit`.

pip-audit runs in an environment of its own, with the version that uv.lock has. It asks PyPI.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
UV = (str(Path(sys.executable).with_name("uv")), "run", "--isolated", "--locked", "--quiet")
PIP_AUDIT = (*UV, "--only-group", "audit", "--", "pip-audit")


def locked_packages(lock: Path) -> list[dict[str, str]]:
    """Return the packages of a lock file that come from an index, as versions by name.

    A package that has several versions, for several Pythons, is in several of the mappings.
    """
    mappings: list[dict[str, str]] = [{}]
    for package in tomllib.loads(lock.read_text())["package"]:
        name, version = package["name"], package["version"]
        if "registry" in package["source"]:
            if all(name in versions for versions in mappings):
                mappings.append({})
            next(each for each in mappings if name not in each)[name] = version
    return mappings


def audit(versions: Mapping[str, str], command: Sequence[str] = PIP_AUDIT) -> list[str]:
    """Return a line for each vulnerability, and for each package that could not be audited."""
    with TemporaryDirectory() as folder:
        requirements, report = Path(folder, "requirements.txt"), Path(folder, "report.json")
        requirements.write_text("".join(f"{name}=={versions[name]}\n" for name in versions))
        options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
        done = subprocess.run(
            [*command, *options, "--output", str(report), "--requirement", str(requirements)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if not report.exists():
            reason = (done.stderr.strip().splitlines() or ["pip-audit wrote no report"])[-1]
            return [f"No package could be audited: {reason}"]
        audited = {each["name"]: each for each in json.loads(report.read_text())["dependencies"]}
    left_out = {"skip_reason": "the report leaves it out"}
    return [line for name in versions for line in _problems(name, audited.get(name, left_out))]


def _problems(name: str, result: dict[str, Any]) -> list[str]:
    if reason := result.get("skip_reason"):
        return [f"{name} could not be audited: {reason}"]
    return [
        f"{name} {result['version']} has {found['id']}, "
        f"fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for found in result["vulns"]
    ]


def main() -> int:
    """Print the problems, and return 1 if there are any."""
    mappings = locked_packages(ROOT / "uv.lock")
    problems = [problem for versions in mappings for problem in audit(versions)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if any("be audited: " in problem for problem in problems):
        print("Not every package could be audited. PyPI must be reachable.", file=sys.stderr)
    if not problems:
        print(f"No known vulnerability in {sum(map(len, mappings))} packages.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
