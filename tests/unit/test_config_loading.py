from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.config import StreamsConfig
from headrace.config.loading import settings_file, settings_from_file
from headrace.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty working directory, and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(variable)
    return tmp_path


def read(file: Path, text: str, variables: Mapping[str, str] | None = None) -> dict[str, object]:
    file.write_text(text, encoding="utf-8")
    settings, problems = settings_from_file(file, variables or {})
    assert problems == []
    return settings


def problems_of_load(path: str | None = None) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        StreamsConfig.load(path)
    return raised.value.problems


def test_without_a_file_and_variables_there_are_the_defaults() -> None:
    assert StreamsConfig.load() == StreamsConfig()


def test_settings_may_stand_at_the_top_of_headrace_toml_or_in_its_table(folder: Path) -> None:
    (folder / "headrace.toml").write_text(
        """
        "application.id" = "orders"
        commit.interval.ms = 200
        "task.timeout.ms" = "1m"
        "bootstrap.servers" = ["one:9092", "two:9092"]

        [consumer]
        max.poll.records = 5

        [headrace]
        "processing.guarantee" = "at_least_once"
        consumer.fetch.min.bytes = 1
        spark.master = "local[2]"
        """
    )

    assert StreamsConfig.load() == StreamsConfig(
        application_id="orders",
        commit_interval=200,
        task_timeout="1m",
        bootstrap_servers="one:9092,two:9092",
        processing_guarantee="at_least_once",
        consumer={"max.poll.records": 5, "fetch.min.bytes": 1},
        spark={"spark.master": "local[2]"},
    )


def test_a_project_file_has_a_table_for_settings(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\n[tool.headrace]\n"application.id" = "orders"\n'
    )

    assert StreamsConfig.load() == StreamsConfig(application_id="orders")


def test_a_project_file_without_the_table_has_no_settings(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\n')

    assert StreamsConfig.load() == StreamsConfig()


def test_headrace_toml_goes_before_the_project_file(folder: Path) -> None:
    assert settings_file(folder) is None
    (folder / "pyproject.toml").touch()
    assert settings_file(folder) == folder / "pyproject.toml"
    (folder / "headrace.toml").touch()
    assert settings_file(folder) == folder / "headrace.toml"


def test_a_file_that_is_named_is_read_in_place_of_the_others(folder: Path) -> None:
    (folder / "headrace.toml").write_text('"application.id" = "no"')
    (folder / "production.toml").write_text('"application.id" = "orders"')
    (folder / "production.properties").write_text("application.id=java")

    assert StreamsConfig.load("production.toml").application_id == "orders"
    assert StreamsConfig.load(Path("production.properties")).application_id == "java"


def test_properties_are_read_as_java_reads_them(folder: Path) -> None:
    text = (
        "# a comment\n"
        "! another\n"
        "\n"
        "application.id=orders\n"
        "  commit.interval.ms : 100  \n"
        "state.dir /var/lib\n"
        "bootstrap.servers = one:9092,\\\n"
        "    two:9092\n"
        "a\\=b\\:c\\ d=e=f\n"
        "escaped=\\u4e2d\\t\\\\ \\q\\n\n"
        "empty\n"
        "ends.in.two\\\\=x\\\\\n"
        "last=x\\"
    )

    assert read(folder / "app.properties", text) == {
        "application.id": "orders",
        "commit.interval.ms": "100  ",
        "state.dir": "/var/lib",
        "bootstrap.servers": "one:9092,two:9092",
        "a=b:c d": "e=f",
        "escaped": "中\t\\ q\n",
        "empty": "",
        "ends.in.two\\": "x\\",
        "last": "x",
    }


def test_text_may_refer_to_variables_and_files(folder: Path) -> None:
    (folder / "password.txt").write_text("hunter2\n")
    text = """
        "sasl.password" = "${file:password.txt}"
        "sasl.username" = "${env:KAFKA_USER}-1"
        "num.stream.threads" = 2
    """

    assert read(folder / "headrace.toml", text, {"KAFKA_USER": "ann"}) == {
        "sasl.password": "hunter2",
        "sasl.username": "ann-1",
        "num.stream.threads": 2,
    }


def test_a_reference_to_nothing_is_a_problem_of_its_setting(folder: Path) -> None:
    (folder / "headrace.toml").write_text(
        '"sasl.password" = "${file:missing.txt}"\n"sasl.username" = "${env:MISSING_USER}"\n'
    )

    first, second = problems_of_load()

    assert first.startswith("headrace.toml: `sasl.password` refers to what cannot be read ([Errno")
    assert second == (
        "headrace.toml: `sasl.username` refers to what cannot be read "
        "(the variable MISSING_USER is not set)."
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("headrace.toml", "a = ", "cannot be read (Invalid value"),
        ("headrace.toml", "headrace = 5", "(`headrace` is not a table). Correct the file."),
        ("pyproject.toml", "tool = 5", "(`tool` is not a table)"),
        ("pyproject.toml", "[tool]\nheadrace = 5", "(`headrace` is not a table)"),
        ("app.yaml", "a: 5", "its name ends neither in .toml nor in .properties"),
        ("app.toml", "\ufeff\ud800", "codec can't decode"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem(
    folder: Path, name: str, text: str, message: str
) -> None:
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))

    (problem,) = problems_of_load(name)

    assert problem.startswith(f"The settings in '{name}' cannot be read")
    assert message in problem


def test_a_file_that_is_not_there_is_a_problem() -> None:
    (problem,) = problems_of_load("missing.toml")

    assert "No such file" in problem


def test_problems_name_the_file_and_the_variable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "headrace.toml").write_text('application_id = "x"\n"comit.interval.ms" = 5\n')
    monkeypatch.setenv("HEADRACE_TASK_TIMEOUT", "soon")
    monkeypatch.setenv("HEADRACE_APLICATION_ID", "x")

    first, second, aplication, timeout = problems_of_load()

    assert aplication == (
        "`HEADRACE_APLICATION_ID` is not a setting. Did you mean `HEADRACE_APPLICATION_ID`?"
    )
    assert first == (
        "headrace.toml: `application_id` is a keyword of Python code. Here write `application.id`."
    )
    assert second == (
        "headrace.toml: `comit.interval.ms` is not a setting. Did you mean `commit.interval.ms`?"
    )
    assert "HEADRACE_TASK_TIMEOUT: `task.timeout.ms` is 'soon', which is not" in timeout


def test_variables_win_over_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "headrace.toml").write_text(
        '"application.id" = "orders"\n"commit.interval.ms" = 200\nconsumer.max.poll.records = 5\n'
    )
    monkeypatch.setenv("HEADRACE_COMMIT_INTERVAL", "1s")
    monkeypatch.setenv("HEADRACE_CONSUMER_FETCH_MIN_BYTES", "1")

    assert StreamsConfig.load() == StreamsConfig(
        application_id="orders",
        commit_interval="1s",
        consumer={"max.poll.records": 5, "fetch.min.bytes": 1},
    )


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("APPLICATION_ID", "orders", StreamsConfig(application_id="orders")),
        ("COMMIT_INTERVAL", "1s", StreamsConfig(commit_interval="1s")),
        ("COMMIT_INTERVAL_MS", "1000", StreamsConfig(commit_interval="1s")),
        ("FAIL_ON_DATA_LOSS", "false", StreamsConfig(fail_on_data_loss=False)),
        ("NUM_STREAM_THREADS", "4", StreamsConfig(num_stream_threads=4)),
        ("TRIGGER", "available_now", StreamsConfig(trigger="available_now")),
        ("EMBEDDED_PATH", "log.db", StreamsConfig(embedded_path="log.db")),
        ("DEFAULT_KEY_SERDE", "str", StreamsConfig(default_key_serde=str)),
        ("SASL_PASSWORD", " x ", StreamsConfig(sasl_password=" x ")),
        ("SPARK_MASTER", "local[2]", StreamsConfig(spark={"spark.master": "local[2]"})),
        ("AUTO_OFFSET_RESET", "latest", StreamsConfig(consumer={"auto.offset.reset": "latest"})),
        ("CLIENT_TAG_ZONE", "a", StreamsConfig(client_tag={"zone": "a"})),
        ("CACHE_MAX_BYTES_BUFFERING", "5", StreamsConfig(statestore_cache_max_bytes=5)),
        ("POLL_MS", "5", StreamsConfig()),
        (
            "MAIN_CONSUMER_MAX_POLL_RECORDS",
            "5",
            StreamsConfig(main_consumer={"max.poll.records": 5}),
        ),
    ],
)
def test_a_variable_is_named_after_the_keyword_or_kafkas_name(
    variable: str, text: str, expected: StreamsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HEADRACE_{variable}", text)
    monkeypatch.setenv("UNRELATED_VARIABLE", "x")

    assert StreamsConfig.load() == expected


def test_a_setting_that_cannot_be_followed_is_refused_from_a_variable_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_PROCESSOR_WRAPPER_CLASS", "x")

    (problem,) = problems_of_load()

    assert problem.startswith(
        "HEADRACE_PROCESSOR_WRAPPER_CLASS: `processor.wrapper.class` cannot be followed here."
    )


def test_only_loading_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_APPLICATION_ID", "orders")

    assert StreamsConfig().application_id is None
    assert StreamsConfig.from_properties({}).application_id is None
    assert StreamsConfig.load().application_id == "orders"


def test_loaded_settings_override_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_COMMIT_INTERVAL", "5s")
    code = StreamsConfig(application_id="orders", commit_interval="1s")

    config = code.overlaid_by(StreamsConfig.load())

    assert config.application_id == "orders"
    assert config.commit_interval == timedelta(seconds=5)
