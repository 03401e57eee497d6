"""Forget the state and the progress of an application."""

from __future__ import annotations

import shutil
from contextlib import suppress

from headrace.brokers.log import TopicLog
from headrace.brokers.opening import open_log
from headrace.config import StreamsConfig
from headrace.errors import UnknownTopicError
from headrace.spark.lease import Lease, application_directory
from headrace.spark.planning.topics import epochs_name


def forget_application(config: StreamsConfig) -> None:
    """Delete the checkpoint of an application together with its markers and offsets.

    Raises:
        CheckpointInUseError: The application runs.
    """
    application_id = config.require_application_id()
    directory = application_directory(config.state_dir, application_id)
    with Lease(directory):
        # A checkpoint without its markers would write its last batch again: it goes first.
        checkpoint, aside = directory / "checkpoint", directory / "checkpoint.deleted"
        shutil.rmtree(aside, ignore_errors=True)
        if checkpoint.exists():
            checkpoint.rename(aside)
        log = open_log(config)
        try:
            forget_progress(log, application_id)
        finally:
            log.close()
        shutil.rmtree(aside, ignore_errors=True)


def forget_progress(log: TopicLog, application_id: str) -> None:
    """Delete the markers and the offsets of an application."""
    log.delete_group(epochs_name(application_id))
    log.delete_group(application_id)
    with suppress(UnknownTopicError):
        log.delete_topic(epochs_name(application_id))
