"""`headrace version`, `config show`, `doctor`, and how the command begins."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import __version__
from headrace.cli import about
from headrace.cli.commands import COMMANDS, load
from headrace.cli.main import main
from headrace.spark.processes.cds_archive import cds_archive
from headrace.spark.processes.java import find_java
from tests.cli.conftest import Cli

HEAVY = {"pyspark", "py4j", "pandas", "pyarrow", "numpy", "confluent_kafka", "fastapi", "uvicorn"}


def states(findings: list[dict[str, Any]]) -> dict[str, str]:
    return {finding["check"]: finding["state"] for finding in findings}


def test_the_version_is_shown_with_what_it_uses(cli: Cli) -> None:
    assert cli("version").out.startswith(f"headrace {__version__} (python 3.")
    assert cli("version", "--output", "json").data["headrace"] == __version__


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from headrace.cli.commands import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "import json\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "Run a program on Spark" in done.stdout
    loaded = set(json.loads(done.stderr))
    assert loaded & (HEAVY | {"rich"}) == set()
    assert {name for name in loaded if name.startswith("headrace.cli.")} == {
        "headrace.cli.commands"
    }


@pytest.mark.parametrize(
    "name", [name for subtopology in COMMANDS.values() for name in subtopology]
)
def test_the_list_has_the_description_of_each_command(name: str, cli: Cli) -> None:
    (place,) = (subtopology[name] for subtopology in COMMANDS.values() if name in subtopology)

    assert (load(name).help or "").startswith(place.help.rstrip("."))
    assert place.help in cli("--help").out
    assert cli(name, "--help").out.split()[:3] == ["Usage:", "headrace", name]


def test_an_unknown_command_is_an_error_with_the_nearest_one(cli: Cli) -> None:
    done = cli("tpics")

    assert done.code == 2
    assert "No such command 'tpics'. Did you mean 'topics'?" in done.err


def test_describing_a_program_imports_nothing_heavy(program: str, folder: Path) -> None:
    code = (
        "import sys\n"
        "from headrace.cli.commands import app\n"
        f"try:\n    app(['describe', {program!r}])\nexcept SystemExit:\n    pass\n"
        "import json\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder
    )

    assert done.stdout.startswith("Topologies:")
    assert HEAVY.intersection(json.loads(done.stderr)) == set()


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_its_packages_the_command_names_the_extra_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 1
    assert "pip install 'headrace[cli]'" in capsys.readouterr().err


def test_settings_are_shown_with_their_origin_and_without_secrets(
    cli: Cli, program: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "headrace.toml").write_text('client.id = "of-file"\nsasl.password = "canary-one"\n')
    (folder / "more.properties").write_text("consumer.fetch.min.bytes=7\n")
    monkeypatch.setenv("HEADRACE_STATE_DIR", "of-environment")

    done = cli(
        "config", "show", program, "--origin", "--output", "json", "-s", "trigger=1s",
        "-s", "ssl.key.password=canary-two", "--command-config", "more.properties",
    )  # fmt: skip

    rows = {row["setting"]: (row["value"], row["origin"]) for row in done.data}
    assert rows == {
        "application.id": ("word-count", "the program"),
        "client.id": ("of-file", "headrace.toml"),
        "consumer.fetch.min.bytes": ("7", "more.properties"),
        "sasl.password": ("****", "headrace.toml"),
        "ssl.key.password": ("****", "a flag"),
        "state.dir": ("of-environment", "the environment"),
        "trigger": (rows["trigger"][0], "a flag"),
    }
    assert "canary" not in done.out


def test_settings_without_values_are_shown_as_defaults(cli: Cli) -> None:
    assert cli("config", "show").out.startswith("Every setting has its default.")


def test_all_settings_can_be_shown(cli: Cli) -> None:
    done = cli("config", "show", "--all", "--origin", "-s", "client.id=me")

    lines = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
    assert lines["client.id"] == ["me", "a", "flag"]
    assert lines["processing.guarantee"] == ["exactly_once_v2", "default"]


def test_the_doctor_finds_this_machine_well(cli: Cli, folder: Path) -> None:
    done = cli("doctor", "--output", "json")

    found = states(done.data)
    assert found["Python"] == found["Embedded log"] == found["State folder"] == "ok"
    assert done.code == (1 if "failed" in found.values() else 0)


def test_the_doctor_names_the_fixes(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("JAVA_HOME", str(folder / "nowhere"))
    monkeypatch.setattr(about, "_installed", lambda _: None)

    done = cli(
        "doctor", "--state-dir", "file/below", "--bootstrap-servers", "127.0.0.1:1",
        "-s", "request.timeout.ms=300",
    )  # fmt: skip

    assert done.code == 1
    lines = {line.split()[1]: line for line in done.out.splitlines()}
    assert "`JAVA_HOME` is" in lines["Java"]
    assert "pip install 'headrace[spark]'" in lines["pyspark"]
    assert "pip install 'headrace[kafka]'" in lines["confluent-kafka"]
    assert lines["Broker"].startswith("failed")
    assert "--state-dir" in lines["State"]


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "ok"),
        ('openjdk version "21" 2023-09-19', "ok"),
        ('java version "1.8.0_202"', "failed"),
        ("something else", "failed"),
    ],
)
def test_the_doctor_reads_the_version_of_java(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, said: str, state: str
) -> None:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))

    assert states(cli("doctor", "--output", "json").data)["Java"] == state


def test_the_doctor_asks_java_once(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho asked >> {folder}/asked\necho 'version \"17.0.9\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))

    found = states(cli("doctor", "--output", "json").data)

    assert (found["Java"], found["Class archive"]) == ("ok", "warning")
    assert (folder / "asked").read_text() == "asked\n"


def test_the_doctor_misses_java_and_warns_of_a_full_disk(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(about, "_FREE_BYTES", 1 << 60)
    monkeypatch.setattr(about, "_installed", lambda name: "1.0" if name == "pyspark" else None)

    found = cli("doctor", "--output", "json").data

    assert states(found)["Java"] == "failed"
    assert states(found)["Disk"] == "warning"
    assert states(found)["pyspark"] == "failed"
    assert states(found)["confluent-kafka"] == "warning"


def test_the_doctor_reports_whether_warm_up_has_run(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))

    without = cli("doctor").out
    archive = cds_archive(find_java().version)
    archive.parent.mkdir()
    archive.write_bytes(b"classes")
    found = cli("doctor", "--output", "json").data

    assert "warning  Class archive" in without
    assert "`headrace warm-up`" in without
    assert states(found)["Class archive"] == "ok"


def test_the_doctor_reports_no_archive_without_spark(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "headrace.spark.processes.cds_archive", None)

    assert "Class archive" not in states(cli("doctor", "--output", "json").data)
