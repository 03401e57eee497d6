"""The folders of an application under test."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from headrace import StreamsConfig
from headrace.brokers import open_log
from headrace.home import ApplicationHome


def home_of(config: StreamsConfig) -> ApplicationHome:
    """Return the home of an application on the log that its settings name."""
    with closing(open_log(config)) as log:
        return ApplicationHome.of(config, log.cluster_id())


def embedded_home(state_dir: Path, application_id: str = "app") -> ApplicationHome:
    """Return the home of an application on the embedded log."""
    return ApplicationHome(state_dir, state_dir, application_id, "embedded")
