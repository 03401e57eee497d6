"""``headrace version``, ``config show`` and ``doctor``: what is installed, set, and in order."""

from __future__ import annotations

import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headrace import __version__
from headrace.brokers import open_log
from headrace.brokers.opening import log_address
from headrace.cli.session import FAILED, Session, with_options
from headrace.cli.settings import BrokerOptions, code_of, origins_of
from headrace.cli.targets import load_target
from headrace.config import StreamsConfig, catalogue
from headrace.config.masking import MASK, is_secret
from headrace.config.values import Prefixed
from headrace.errors import StreamsError
from headrace.spark.processes.java import Java, find_java

_PYTHON = (3, 11)
_BROKER_SECONDS = 5
_FREE_BYTES = 1 << 30

config_app = typer.Typer(help="Show settings.", no_args_is_help=True, add_completion=False)


@with_options
def version(*, session: Session) -> None:
    """Show the versions of Headrace and its packages."""
    row: dict[str, Any] = {"headrace": __version__, "python": platform.python_version()}
    for package in ("pyspark", "confluent-kafka", "pyarrow"):
        row[package] = _installed(package) or "not installed"
    if session.is_json:
        session.show_json(row)
    else:
        others = ", ".join(f"{name} {value}" for name, value in row.items() if name != "headrace")
        typer.echo(f"headrace {__version__} ({others})")


@config_app.command("show")
@with_options
def show_config(
    target: Annotated[
        str | None, typer.Argument(help="A program whose settings count too.")
    ] = None,
    *,
    origin: Annotated[
        bool, typer.Option("--origin", help="Show the source of each setting.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show the settings that have their defaults too.")
    ] = False,
    session: Session,
    broker: BrokerOptions,
) -> None:
    """Show the settings that are in force. Secrets are masked."""
    code = None if target is None else code_of(load_target(target))
    config = broker.config(code)
    origins = origins_of(code, broker.flags(), broker.command_config)
    explicit = config.properties()
    values = {**(_defaults() if everything else {}), **explicit}
    rows = []
    for name, value in sorted(values.items()):
        row = {"setting": name, "value": MASK if is_secret(name, value) else _plain(value)}
        if origin:
            row["origin"] = origins.get(name, "unknown") if name in explicit else "default"
        rows.append(row)
    session.show(rows, empty="Every setting has its default. `--all` shows them.")


@dataclass(frozen=True)
class Finding:
    """The result of one check of the doctor."""

    check: str
    state: Literal["ok", "warning", "failed"]
    detail: str
    remedy: str = ""


@with_options
def doctor(*, session: Session, broker: BrokerOptions) -> None:
    """Check Java, packages, broker and disk, and suggest fixes."""
    config = broker.config()
    findings = list(_findings(config))
    if session.is_json:
        session.show_json([vars(finding) for finding in findings])
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            remedy = f" {finding.remedy}" if finding.remedy else ""
            typer.echo(f"{finding.state:7}  {finding.check:{width}}  {finding.detail}{remedy}")
    if any(finding.state == "failed" for finding in findings):
        raise typer.Exit(FAILED)


def _findings(config: StreamsConfig) -> Iterator[Finding]:
    yield _python()
    java = _java_or_error()
    yield _java(java)
    yield _package("pyspark", "4.3", "spark", needed=True)
    yield _package("pyarrow", "18", "spark", needed=True)
    if isinstance(java, Java):
        yield from _archive(java)
    yield _package("confluent-kafka", "2.12", "kafka", needed=config.uses_kafka)
    yield _topics(config)
    yield _folder("State folder", config.state_dir, "--state-dir")
    if config.work_dir is not None:
        yield _folder("Work folder", config.work_dir, "-s work.dir=")
    yield _free_space(config.state_dir)


def _python() -> Finding:
    current = platform.python_version()
    if _numbers(current) >= _PYTHON:
        return Finding("Python", "ok", current)
    return Finding("Python", "failed", f"{current} is too old.", "Install Python 3.11 or later.")


def _java_or_error() -> Java | StreamsError:
    try:
        return find_java()
    except StreamsError as error:
        return error


def _java(java: Java | StreamsError) -> Finding:
    if isinstance(java, StreamsError):
        remedy = "For example `apt install openjdk-17-jre-headless`."
        return Finding("Java", "failed", str(java), remedy)
    return Finding("Java", "ok", f"{java.version} ({java.path})")


def _package(name: str, least: str, extra: str, *, needed: bool) -> Finding:
    installed = _installed(name)
    remedy = f"Install it with `pip install 'headrace[{extra}]'`."
    if installed is None:
        state: Literal["warning", "failed"] = "failed" if needed else "warning"
        use = "Not installed." if needed else "Not installed; only Kafka needs it."
        return Finding(name, state, use, remedy)
    if _numbers(installed) < _numbers(least):
        return Finding(name, "failed", f"{installed} is too old; {least} is needed.", remedy)
    return Finding(name, "ok", installed)


def _archive(java: Java) -> Iterator[Finding]:
    try:
        from headrace.spark.processes.cds_archive import cds_archive
    except ModuleNotFoundError:
        return  # `_package` has reported it
    archive = cds_archive(java.version)
    if archive.exists():
        yield Finding("Class archive", "ok", str(archive))
    else:
        detail = "There is none, so Spark takes twice the time to start."
        yield Finding("Class archive", "warning", detail, "Make it once with `headrace warm-up`.")


def _topics(config: StreamsConfig) -> Finding:
    check, where = "Broker" if config.uses_kafka else "Embedded log", log_address(config)
    if config.request_timeout is None:
        config = config.with_settings(request_timeout=timedelta(seconds=_BROKER_SECONDS))
    try:
        log = open_log(config)
        try:
            count = len(log.list_topics())
        finally:
            log.close()
    except StreamsError as error:
        return Finding(check, "failed", str(error))
    return Finding(check, "ok", f"{where}, {count} topics")


def _folder(check: str, folder: Path, flag: str) -> Finding:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        remedy = f"Choose another with `{flag}`, or correct its permissions."
        return Finding(check, "failed", f"{folder} cannot be written ({error}).", remedy)
    return Finding(check, "ok", str(folder.resolve()))


def _free_space(folder: Path) -> Finding:
    there = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(there).free
    detail = f"{free / (1 << 30):.1f} GiB free"
    if free < _FREE_BYTES:
        return Finding("Disk", "warning", f"{detail}.", "Make room: state and checkpoints grow.")
    return Finding("Disk", "ok", detail)


def _installed(package: str) -> str | None:
    try:
        return installed_version(package)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _defaults() -> dict[str, Any]:
    return {
        setting.name: None
        if setting.default is None
        else setting.value.property_of(setting.default)
        for setting in catalogue().values()
        if not isinstance(setting.value, Prefixed)
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else str(value)
