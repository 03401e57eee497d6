"""A second process stands by and takes over, from a dead leader or from one that wakes up later."""

from __future__ import annotations

import subprocess

from chaos.processes import Session, lives
from chaos.scene import Fault, NoRecoveryError, NothingHappenedError, Scene, await_that
from headrace.topology.naming import leader_name

LEAD_SECONDS = 30.0
"""The bound on the time until a standby leads: Kafka's session and a join, on a busy machine."""

END_SECONDS = 60.0
"""The bound on the time in which a process that was taken over from has ended."""

_SLEEP_SECONDS = 15.0
"""Longer than Kafka's session, after which the group expels a leader that does not answer."""

_FAILED = 1
_LAST_WORDS = "Another process has taken over application"


def _take_over(scene: Scene) -> str:
    """Kill the leader; the standby leads and is kept running from then on.

    Raises:
        NoRecoveryError: The standby does not lead in time.
    """
    first = _followed(scene)
    killed = Session(first.pid).kill()
    first.wait()
    if not killed:
        msg = "The leader had ended before."
        raise NothingHappenedError(msg)
    _await_successor(scene)
    return f"{len(killed)} killed"


def _zombie(scene: Scene) -> str:
    """Stop the leader until another process leads; then it continues, and must end.

    On the embedded log the leader holds a lock on a file, also while it is stopped. There only the
    driver's Python dies, which held the lock; its Java and its workers wake up.

    Raises:
        NoRecoveryError: The standby does not lead in time, or the zombie does not end.
    """
    first = _followed(scene)
    return _woken_too_late(scene, first, Session(first.pid).pids())


def _sleeping_driver(scene: Scene) -> str:
    """Stop the leader's Python alone until another process leads; then it must end.

    Its Java and its workers run meanwhile. On the embedded log a stopped leader holds the lock, so
    no standby may take over: it still leads when it wakes up.

    Raises:
        NoRecoveryError: The standby does not lead in time, or does where it must not, or the
            leader does not end.
    """
    if scene.site.kind == "embedded":
        return _sleep_in_the_lead(scene)
    first = _followed(scene)
    return _woken_too_late(scene, first, [first.pid])


def _sleep_in_the_lead(scene: Scene) -> str:
    _await_standby(scene)
    session = scene.supervisor.session
    try:
        if not (_leads(scene) and (stopped := session.stop([session.driver]))):
            msg = "The leader had ended before."
            raise NothingHappenedError(msg)
        try:
            is_deposed = await_that(lambda: not _leads(scene), _SLEEP_SECONDS)
        finally:
            session.resume(stopped)
    finally:
        scene.supervisor.dismiss()
    if is_deposed:
        msg = "Another process leads while this one holds the lock."
        raise NoRecoveryError(msg)
    return f"driver asleep for {_SLEEP_SECONDS:g} s, led on"


def _woken_too_late(scene: Scene, first: subprocess.Popen[str], sleepers: list[int]) -> str:
    """Stop processes of the leader until another one leads, and check that all end."""
    session, said = Session(first.pid), _times_said(scene)
    stopped = session.stop(sleepers)
    try:
        if first.pid not in stopped:
            msg = "The leader had ended before."
            raise NothingHappenedError(msg)
        on_embedded = scene.site.kind == "embedded"
        if on_embedded:
            session.kill([first.pid])
            first.wait()
        _await_successor(scene)
        if scene.chance.random() < 0.5:
            _await_progress(scene)
        woken = session.resume(stopped)
    finally:
        session.resume(stopped)
    if not woken:
        msg = "Nothing was left to wake."
        raise NothingHappenedError(msg)
    if not await_that(lambda: not any(map(lives, session.pids())), END_SECONDS):
        msg = f"The zombie lived on for {END_SECONDS:g} s."
        raise NoRecoveryError(msg)
    if not on_embedded and (first.wait() != _FAILED or _times_said(scene) == said):
        msg = f"The zombie ended with {first.wait()}, and not because another process leads."
        raise NoRecoveryError(msg)
    return f"{len(woken)} woken"


def _followed(scene: Scene) -> subprocess.Popen[str]:
    """Start a standby of the leader, which is returned."""
    _await_standby(scene)
    return scene.supervisor.follow()


def _await_standby(scene: Scene) -> None:
    if not scene.supervisor.stand_by():
        scene.supervisor.dismiss()
        msg = "There was no standby."
        raise NothingHappenedError(msg)


def _await_successor(scene: Scene) -> None:
    if not await_that(lambda: _leads(scene), LEAD_SECONDS):
        msg = f"The standby did not lead within {LEAD_SECONDS:g} s."
        raise NoRecoveryError(msg)


def _leads(scene: Scene) -> bool:
    """Return whether the process that is kept running has committed a leader epoch."""
    group = leader_name(scene.supervisor.application_id)
    process = f"Process {scene.supervisor.session.driver} on "
    committed = scene.site.log.committed_offsets(group).values()
    return any(process in each.metadata for each in committed)


def _await_progress(scene: Scene) -> None:
    application_id = scene.supervisor.application_id
    before = scene.site.committed(application_id)
    await_that(lambda: scene.site.committed(application_id) != before, END_SECONDS)


def _times_said(scene: Scene) -> int:
    return scene.supervisor.log.read_text(errors="replace").count(_LAST_WORDS)


FAULTS = (
    Fault("take-over", _take_over),
    Fault("zombie", _zombie, transactional=True),
    Fault("sleeping-driver", _sleeping_driver, transactional=True),
)
