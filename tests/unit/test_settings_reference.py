from __future__ import annotations

import re
from pathlib import Path

import headrace
from headrace.config import catalogue, describe_settings, settings_reference
from headrace.config.names import WITHOUT_EFFECT


def test_every_setting_is_described_in_a_sentence() -> None:
    described = describe_settings()

    assert [each.keyword for each in described] == list(catalogue())
    assert [
        each.keyword for each in described if not re.fullmatch(r"[A-Z].*\.", each.meaning)
    ] == []
    assert all(each.value for each in described)


def test_the_page_has_a_row_for_each_setting_and_each_without_effect() -> None:
    page = settings_reference()

    assert page.startswith(
        "| Name | Keyword | Value | Default | Meaning |\n|---|---|---|---|---|\n"
    )
    assert page.endswith("|\n")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == len(catalogue()) + len(WITHOUT_EFFECT)
    assert {row.count("|") for row in rows[: len(catalogue())]} == {6}
    assert {row.count("|") for row in rows[len(catalogue()) :]} == {3}


def test_a_row_shows_names_value_default_and_meaning() -> None:
    rows = settings_reference().splitlines()

    assert (
        "| `task.timeout.ms` | `task_timeout` | duration | `5m` | "
        "How long a task may fail to make progress before the application stops. |"
    ) in rows
    assert (
        "| `fail.on.data.loss` (Headrace's own) | `fail_on_data_loss` | true or false | `true` | "
        "Whether records that expired before they were read stop the application. |"
    ) in rows
    assert "| `application.id` | `application_id` | name |  | " in settings_reference()
    assert "| `bootstrap_servers` | `host:port`, or several |  | " in settings_reference()
    assert "| `application_server` | `host:port` |  | " in settings_reference()
    assert "| `state.dir` | `state_dir` | path | `.headrace` | " in settings_reference()
    assert "| `consumer.` | `consumer` | mapping |  | Settings of every consumer. |" in rows
    assert "| `poll.ms` | Batches follow `trigger`. |" in rows


def test_a_setting_that_nothing_reads_is_documented_as_without_effect() -> None:
    declared = {"streams_config.py", "settings.py"}
    text = "".join(
        path.read_text()
        for path in Path(headrace.__file__).parent.rglob("*.py")
        if path.parent.name != "config" or path.name not in declared
    )
    words = set(re.findall(r"\w+", text))
    unread = {
        keyword
        for keyword, setting in catalogue().items()
        if keyword not in words and not setting.named.for_clients
    }

    said = {each.keyword for each in describe_settings() if "without effect" in each.meaning}

    assert said == unread
