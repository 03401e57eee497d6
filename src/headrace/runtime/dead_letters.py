"""Write the dead letters of a record that stops the application, once.

The batch that fails writes nothing, so they have a transaction of their own. The marker of the task
records the failure in the same transaction: a replay of the batch fails again, and finds it there.

Run `tests/runtime/test_dead_letters.py` and `make nightly PART=model` after a change here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.errors import ProducerFencedError, RecordError, StreamsError
from headrace.processors.handlers import shorter_dead_letters
from headrace.records import ProducerRecord
from headrace.runtime.batches import Batch
from headrace.runtime.checkpoint.markers import Marker, parse_marker
from headrace.runtime.leadership import check_leadership
from headrace.runtime.program import Program
from headrace.serdes.partitioner import partition_for_key
from headrace.topology.naming import dead_letters_transactional_id, markers_name

_log = logging.getLogger("headrace")

_ATTEMPTS = 5
"""How often a task tries that another task fences, because it fails at the same time."""


def write_dead_letters(
    program: Program, log: Broker, error: RecordError, *, task_number: int, failure: str
) -> None:
    """Write the dead letters of an error that stops the application, unless they are written.

    Whatever goes wrong here is logged only: the error itself says more.

    Args:
        program: The program that runs.
        log: Where to write.
        error: Has the dead letters.
        task_number: The task that failed.
        failure: Identifies the failure, the same in every replay of the batch.
    """
    if not error.dead_letters:
        return
    for attempt in range(_ATTEMPTS):
        try:
            dead_letters = [
                _fitting(program, log, dead_letter) for dead_letter in error.dead_letters
            ]
            _write_once(program, log, dead_letters, task_number, failure)
        except ProducerFencedError as fenced:
            if attempt == _ATTEMPTS - 1:
                _log.warning("The dead letter of %s is not written: %s", failure, fenced)
        except StreamsError as own:
            _log.warning("The dead letter of %s is not written: %s", failure, own)
            return
        else:
            return


def failure_of(error: RecordError, batch: Batch) -> str:
    """Return what identifies the failure of an input record, or of a punctuation in a batch."""
    if error.topic is None:
        return f"{batch.digest} {error.node}"
    return f"{error.topic} {error.partition} {error.offset}"


def placed(program: Program, log: Broker, dead_letter: ProducerRecord) -> ProducerRecord:
    """Return a dead letter with its partition: that of its key, or 0."""
    if dead_letter.partition is not None:
        return dead_letter
    partition = 0
    if dead_letter.key is not None:
        known = program.partition_counts.get(dead_letter.topic)
        partitions = log.partition_count(dead_letter.topic) if known is None else known
        partition = partition_for_key(dead_letter.key, partitions)
    return dead_letter._replace(partition=partition)


def _fitting(program: Program, log: Broker, dead_letter: ProducerRecord) -> ProducerRecord:
    """Return a dead letter that the broker accepts, shortened if it must be."""
    versions = [
        placed(program, log, each) for each in (dead_letter, *shorter_dead_letters(dead_letter))
    ]
    refused = dict(log.refusals(versions))
    for index, version in enumerate(versions):
        if index not in refused:
            return version
    raise refused[0]


def _write_once(
    program: Program,
    log: Broker,
    dead_letters: Sequence[ProducerRecord],
    task_number: int,
    failure: str,
) -> None:
    application_id = program.plan.application_id
    check_leadership(log, application_id, program.leader_epoch)
    if program.config.processing_guarantee != "exactly_once_v2":
        offsets = _marker_of(program, log, task_number, failure)
        if offsets:
            log.append(dead_letters)
            log.commit_offsets(markers_name(application_id), offsets)
        return
    with log.transaction(dead_letters_transactional_id(application_id)) as transaction:
        # A process that becomes leader from here on fences this transaction.
        check_leadership(log, application_id, program.leader_epoch)
        offsets = _marker_of(program, log, task_number, failure)
        if offsets:
            transaction.append(dead_letters)
            transaction.commit_offsets(markers_name(application_id), offsets)


def _marker_of(
    program: Program, log: Broker, task_number: int, failure: str
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the marker that records a failure; nothing if the failure is recorded.

    Its offset and its digest stay: the marker says which batch is written, and this one is not.
    """
    application_id = program.plan.application_id
    group = markers_name(application_id)
    partition = TopicPartition(group, task_number)
    committed = log.committed_offsets(group, [partition]).get(partition)
    marker, offset = Marker("", ""), 0
    if committed is not None:
        marker, offset = parse_marker(committed, application_id), committed.offset
    if marker.dead_letter == failure:
        return {}
    marker = msgspec.structs.replace(
        marker, dead_letter=failure, leader_epoch=max(marker.leader_epoch, program.leader_epoch)
    )
    return {partition: OffsetAndMetadata(offset, msgspec.json.encode(marker).decode())}
