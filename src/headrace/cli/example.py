"""``headrace example``: the applications that ship, with generated input."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.app import KafkaStreams
from headrace.brokers import open_log
from headrace.cli.session import (
    NotFoundError,
    RefusedError,
    Session,
    extra_needed,
    with_options,
)
from headrace.cli.settings import BrokerOptions
from headrace.cli.targets import load_target
from headrace.config import StreamsConfig
from headrace.errors import StreamsError
from headrace.examples.catalogue import examples, find_example, learning_path
from headrace.examples.feeding import Encoding
from headrace.examples.running import (
    config_for,
    copy_files,
    create_topics,
    fed,
    start_afresh,
    topics_of,
    used_topics,
)
from headrace.examples.tracing import trace
from headrace.examples.variants import Variant
from headrace.foreground import log_lines, run_until_stopped

_NEXT = """
What to try next:

  {headrace} example {name} --trace  # one record, step by step, without Spark
  {headrace} describe {target}  # what the application does
  {headrace} plan {target}  # how it runs on Spark
{consumes}
"""
_ENDED = "The input has ended after {} records. Ctrl-C stops the application."
_FEW = 2
"""How many output topics the next steps name."""
_MOST_INSTANCES = 9
_COPY = "  {headrace} example {name} --copy my-{name}  # the program, for you to change\n"


@dataclass(frozen=True)
class _Chosen:
    """An example, or a copy of one in a folder."""

    name: str
    """How the user names it."""
    target: str
    """How other commands name its program."""
    folder: Path | None = None
    """The folder of a copy."""
    has_variants: bool = False
    """Whether its ``variants.py`` has other programs."""
    has_main: bool = False
    """Whether its ``main.py`` runs it, because it needs more than one process."""
    has_web: bool = False
    """Whether its ``web.py`` has routes that its instances answer."""
    feed: Any = None
    """Its input."""
    beside: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Opens what it needs besides its log."""
    variant: str | None = None

    @property
    def label(self) -> str:
        """The name of its own log and state."""
        name = self.name if self.folder is None else self.folder.resolve().name
        return name if self.variant is None else f"{name}-{self.variant}"

    @property
    def command(self) -> str:
        """Return how the command is repeated."""
        words = [self.name] if self.variant is None else [self.name, "--variant", self.variant]
        return shlex.join(words)

    @property
    def has_topology(self) -> bool:
        return not self.target.endswith(("main", "main.py"))

    def app(self) -> KafkaStreams:
        """Return the application."""
        app = load_target(self.target).app
        assert app is not None, "the program of an example has an application"
        return app

    def module(self, name: str) -> Any:
        """Return another module of it."""
        return import_module(name if self.folder else f"{self.package}.{name}")

    @property
    def package(self) -> str:
        """The package that holds it, unless it is a copy."""
        return self.target.partition(":")[0].rpartition(".")[0]

    def with_variant(self, name: str) -> _Chosen:
        """Return another program of it.

        Raises:
            NotFoundError: It has none of that name.
        """
        self.app()  # makes the modules of a copy importable
        there = self.module("variants").VARIANTS if self.has_variants else {}
        if name not in there:
            msg = f"Example {self.name!r} has no variant {name!r}. "
            msg += f"There is {', '.join(there)}." if there else "It has no variants."
            raise NotFoundError(msg)
        found: Variant = there[name]
        module, _, attribute = found.program.partition(":")
        program = f"{self.package}.{module}"
        if self.folder is not None:
            program = str(self.folder / f"{module}.py")
        return replace(
            self,
            target=f"{program}:{attribute}",
            feed=found,
            beside=found.beside,
            variant=name,
        )


@with_options
def example(
    name: Annotated[
        str | None,
        typer.Argument(help="An example, or the folder of a copy; without it: list them."),
    ] = None,
    copy: Annotated[
        Path | None, typer.Option("--copy", metavar="DIR", help="Write its files to a folder.")
    ] = None,
    *,
    instances: Annotated[
        int | None,
        typer.Option(
            "--instances",
            min=1,
            max=_MOST_INSTANCES,
            help="How many instances answer queries over HTTP, from port 8080 on.",
        ),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option("--variant", metavar="NAME", help="Run another program of the example."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--trace", help="Follow one record through all steps, without Spark.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Write to topics that hold records already.")
    ] = False,
    session: Session,
    broker: BrokerOptions,
) -> None:
    """List the examples, or run one with generated input until Ctrl-C."""
    if name is None:
        _list(session)
    elif copy is not None:
        _copy(name, copy, session)
    elif follow:
        _trace(_chosen(name, variant), session)
    elif (chosen := _chosen(name, variant)).has_main and variant is None:
        if instances:
            msg = f"Example {name!r} starts what it needs by itself. Leave out `--instances`."
            raise RefusedError(msg)
        _run_main(chosen, session, broker, yes=yes)
    else:
        _run(chosen, session, broker, instances or 0, yes=yes)


def _list(session: Session) -> None:
    rows = [
        {"example": each.name, "does": each.summary, "options": each.options} for each in examples()
    ]
    session.show(rows)
    path = " → ".join(learning_path())
    session.say(f"\nRead them in this order: {path}.")


def _chosen(name: str, variant: str | None = None) -> _Chosen:
    chosen = _named(name)
    return chosen if variant is None else chosen.with_variant(variant)


def _named(name: str) -> _Chosen:
    folder = Path(name)
    is_example = any(each.name == name for each in examples())
    for program in () if is_example else ("app.py", "main.py"):
        if os.path.exists(folder / program):  # noqa: PTH110  # of any length
            return _Chosen(name, str(folder / program), folder, **_parts_in(folder))
    try:
        found = find_example(name)
    except StreamsError as error:
        raise NotFoundError(str(error)) from None
    target = f"{found.package}.{found.program.stem}"
    return _Chosen(name, target, None, **_parts_in(found.folder))


def _parts_in(folder: Path) -> dict[str, Any]:
    return {f"has_{name}": (folder / f"{name}.py").exists() for name in ("main", "web", "variants")}


def _copy(name: str, folder: Path, session: Session) -> None:
    _chosen(name)
    chosen = find_example(name)
    try:
        paths = copy_files(chosen, folder)
    except OSError as error:
        msg = f"The files cannot be written to {str(folder)!r}: {error}. Choose a new folder."
        raise RefusedError(msg) from None
    files = ", ".join(path.name for path in paths)
    shown = str(folder) if os.sep in str(folder) else f".{os.sep}{folder}"
    command = f"{_own_command()} example {shlex.quote(shown)}"
    text = f"Wrote {files} to {folder}. Run it with `{command}`."
    text += f" Its tests run with `pytest {shlex.quote(str(folder))}`."
    session.did(text, files=[str(path) for path in paths])


def _trace(chosen: _Chosen, session: Session) -> None:
    if not chosen.has_topology:
        msg = f"Example {chosen.name!r} has no topology, so there are no steps to follow."
        raise RefusedError(msg)
    app = chosen.app()
    with log_lines(max(session.log_level, logging.ERROR)):
        for line in trace(app, chosen.feed or chosen.module("feed")):
            typer.echo(line)


def _run(
    chosen: _Chosen, session: Session, broker: BrokerOptions, instances: int, *, yes: bool
) -> None:
    program = chosen.app()
    config, is_own = _config_of(chosen, broker, program.config)
    app = KafkaStreams(program.topology, config)
    feed = chosen.feed or chosen.module("feed")
    with broker.repeated_in_errors(app.config):
        if is_own:
            start_afresh(app.config, [app])
        _prepare(app.config, topics_of(app, feed.TOPICS), session, yes=yes)
        terminal = session.terminal()
        level = logging.WARNING if session.quiet or terminal is not None else logging.INFO
        with (
            log_lines(min(level, session.log_level)),
            chosen.beside(),
            _answering(chosen, app, session, broker, instances),
            fed(app, feed, partial(say_ended, session)),
        ):
            code = run_until_stopped(app, terminal)
    if code:
        raise typer.Exit(code)
    session.say(_next_steps(chosen, app, broker))


def say_ended(session: Session, count: int) -> None:
    """Print that the feed has ended: above a live view, which replaces standard output."""
    if not session.quiet and not session.is_json:
        sys.stdout.write(f"{_ENDED.format(count)}\n")
        sys.stdout.flush()


def _prepare(
    config: StreamsConfig, topics: Mapping[str, int], session: Session, *, yes: bool
) -> None:
    """Create the topics of an example, unless some hold records and the user does not agree."""
    with closing(open_log(config)) as log:
        if used := used_topics(log, topics):
            question = f"There are records in {', '.join(used)} already. Add to them?"
            session.ask(question, yes=yes)
        create_topics(log, topics)


@contextmanager
def _answering(
    chosen: _Chosen, app: KafkaStreams, session: Session, broker: BrokerOptions, instances: int
) -> Iterator[None]:
    """Start instances that answer queries for the time of a block, and print how to ask them."""
    if not instances:
        yield
        return
    with extra_needed("`--instances`", "server"):
        from headrace.examples.serving import answering
        from headrace.queries.catalog import catalog_of
        from headrace.runtime.plan import plan_topology
    if not catalog_of(plan_topology(app.topology, app.config)).stores:
        msg = f"Example {chosen.name!r} has no store, so instances have nothing to answer."
        raise RefusedError(msg)
    add_routes = chosen.module("web").add_routes if chosen.has_web else None
    with answering(app, instances, add_routes) as services:
        store = min(services[0].catalog.stores)
        urls = [service.url for service in services]
        text = f"Instances answer queries at {', '.join(urls)}."
        text += " After the first batch, ask any of them:"
        asks = _questions(chosen.target, store, urls, broker)
        session.say("\n".join(["", text, "", *asks, ""]))
        yield


def _questions(target: str, store: str, urls: list[str], broker: BrokerOptions) -> list[str]:
    """Return commands that ask instances."""

    def command(*words: str) -> str:
        return " ".join([f"  {_own_command()}", shlex.join(words), *broker.given()])

    first = urls[0]
    return [
        *(command("query", target, store, "--server", url) for url in urls),
        f"{command('stores', target, '--server', first)}  # all its stores",
        f"{command('status', target, '--server', first)}  # lag, errors, which instance has what",
    ]


def _run_main(chosen: _Chosen, session: Session, broker: BrokerOptions, *, yes: bool) -> None:
    if chosen.folder is not None:
        sys.path.insert(0, str(chosen.folder.resolve()))
    with extra_needed(f"Example {chosen.name!r}", "server"):
        program = chosen.module("main")
    config, is_own = _config_of(chosen, broker, StreamsConfig())
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a pipe shows each line when it is printed
    with broker.repeated_in_errors(config):
        if is_own:
            start_afresh(config, getattr(program, "applications", tuple)())
        _prepare(config, getattr(program, "ALL_TOPICS", {}), session, yes=yes)
        code = program.main(config)
    if code:
        raise typer.Exit(code)


def _config_of(
    chosen: _Chosen, broker: BrokerOptions, code: StreamsConfig
) -> tuple[StreamsConfig, bool]:
    """Return the settings of an example, and whether its log is its own."""
    config = broker.config(code)
    if config.uses_kafka or broker.embedded_path or broker.state_dir:
        return config, False
    return config_for(chosen.label, config), True


def _next_steps(chosen: _Chosen, app: KafkaStreams, broker: BrokerOptions) -> str:
    headrace, target = _own_command(), shlex.quote(chosen.target)
    consumes = [
        f"  {headrace} consume {topic} --from-beginning --timeout 2s --app {target} "
        f"{broker.repeated(app.config)}"
        for topic in islice(Encoding(app).sinks, _FEW)
    ]
    text = _NEXT if chosen.folder else _NEXT + _COPY.replace("{name}", chosen.name)
    return text.format(
        headrace=headrace, name=chosen.command, target=target, consumes="\n".join(consumes)
    )


def _own_command() -> str:
    """Return this command as it was typed, if it was a path from this folder."""
    typed = Path(sys.argv[0])
    is_typed = typed.name == "headrace" and not typed.is_absolute() and len(typed.parts) > 1
    return shlex.quote(str(typed)) if is_typed else "headrace"
