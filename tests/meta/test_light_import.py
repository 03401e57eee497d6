from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tier("test")  # starts processes

HEAVY = {
    "confluent_kafka",
    "fastapi",
    "fastavro",
    "google.protobuf",
    "numpy",
    "pandas",
    "py4j",
    "pyarrow",
    "pydantic",
    "pyspark",
    "pytest",
    "rich",
    "rocksdict",
    "typer",
    "uvicorn",
}


@pytest.mark.parametrize(
    "module", ["headrace", "headrace.clients", "headrace.queries", "headrace.testing"]
)
def test_importing_the_package_imports_nothing_heavy(module: str) -> None:
    program = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"

    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )

    assert HEAVY.intersection(json.loads(done.stdout)) == set()
