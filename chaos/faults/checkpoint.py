"""The last file of the checkpoint is torn, as after a power cut."""

from __future__ import annotations

from pathlib import Path

from chaos.scene import Fault, NoRecoveryError, NothingHappenedError, Scene, await_that

_DECIDE_SECONDS = 60.0


def _tear(folder: str, scene: Scene) -> str:
    """Cut the newest file of a folder short; once it is refused, follow the error's advice.

    The advice is to delete the commit of the last batch, which is then replayed, or to restore the
    file.

    Raises:
        NoRecoveryError: The application neither refused the file nor continued.
    """
    supervisor = scene.supervisor
    await_that(lambda: newest(supervisor.checkpoint / folder) is not None, _DECIDE_SECONDS)
    with supervisor.held_down():
        path = newest(supervisor.checkpoint / folder)
        whole = path.read_bytes() if path is not None else b""
        if path is None or not whole:
            msg = f"There was no file in {folder!r} to tear."
            raise NothingHappenedError(msg)
        kept = scene.chance.randrange(len(whole))
        path.write_bytes(whole[:kept])
        checksum = path.with_name(f".{path.name}.crc")
        if checksum.exists() and scene.chance.random() < 0.5:
            checksum.unlink()  # else the file system would see it, and not Spark
        exits = len(supervisor.exits)
        progress = scene.site.committed(supervisor.application_id)
    what = f"{path.parent.name}/{path.name} cut to {kept} of {len(whole)} bytes"

    def is_refused() -> bool:
        return len(supervisor.exits) > exits

    def has_gone_on() -> bool:
        return scene.site.committed(supervisor.application_id) != progress

    is_decided = await_that(lambda: is_refused() or has_gone_on(), _DECIDE_SECONDS)
    if is_decided and not is_refused():
        return f"{what}: recovered"
    with supervisor.held_down():
        checksum.unlink(missing_ok=True)
        planned = newest(supervisor.checkpoint / "offsets")
        is_deleted = folder == "commits" and planned is not None and planned.name == path.name
        if is_deleted:
            path.unlink()
        else:
            path.write_bytes(whole)
    if not is_decided:
        msg = f"{what}: neither refused nor recovered within {_DECIDE_SECONDS:g} s."
        raise NoRecoveryError(msg)
    return f"{what}: refused, {'deleted' if is_deleted else 'restored'}"


def newest(folder: Path) -> Path | None:
    """Return the file of the last batch in a log of the checkpoint."""
    numbered = [path for path in folder.glob("*") if path.name.isdecimal()]
    return max(numbered, key=lambda path: int(path.name), default=None)


FAULTS = (
    Fault("torn-offsets", lambda scene: _tear("offsets", scene)),
    Fault("torn-commits", lambda scene: _tear("commits", scene)),
)
