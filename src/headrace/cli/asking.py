"""Finds the instances of an application for commands, and asks them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.brokers.opening import open_log
from headrace.cli.session import extra_needed
from headrace.cli.settings import BrokerOptions, code_of, named
from headrace.cli.targets import Target, is_target, load_target
from headrace.config import StreamsConfig
from headrace.errors import QueryError
from headrace.topology.naming import queries_name

if TYPE_CHECKING:
    from headrace.queries.client.client import QueryClient

_option = partial(typer.Option, rich_help_panel="Which instance")

ApplicationName = Annotated[
    str, typer.Argument(metavar="APPLICATION", help="A program, or an application id.")
]


@dataclass(frozen=True)
class InstanceOptions:
    """Flags that choose the instance to ask."""

    server: Annotated[
        str | None,
        _option("--server", help="Its address: host:port. Left out, the group has the instances."),
    ] = None
    timeout: Annotated[
        str, _option("--timeout", help="How long to wait for an instance that can answer.")
    ] = "10s"

    @contextmanager
    def client(self, application: str, broker: BrokerOptions) -> Iterator[QueryClient]:
        """Return a client of an application, for the time of a block.

        Raises:
            QueryError: No instance answers queries of the application.
        """
        with extra_needed("A query", "server"):
            from headrace.queries.client.client import QueryClient
            from headrace.queries.server.doors import read_token
        target = load_target(application) if is_target(application) else None
        config = _config_of(application, target, broker)
        path = config.server_token_file
        with broker.repeated_in_errors(config):
            servers = [self.server] if self.server else instances_of(config)
            if not servers:
                raise no_instance(application, config)
            certificate = config.server_tls_certificate
            scheme = "http" if certificate is None else "https"
            urls = [each if "://" in each else f"{scheme}://{each}" for each in servers]
            token = None if path is None else read_token(path)
            client = QueryClient(
                urls, token=token, ca=certificate, decimals=True, timeout=self.timeout
            )
            with client:
                yield client


def instances_of(config: StreamsConfig) -> list[str]:
    """Return the addresses of the instances that answer queries of an application."""
    group = queries_name(config.require_application_id())
    with closing(open_log(config)) as log:
        return sorted({member.client_id for member in log.describe_group(group)})


def no_instance(application: str, config: StreamsConfig) -> QueryError:
    """Return the error that no instance answers queries of an application."""
    name = shlex.quote(application) if is_target(application) else "app.py"
    msg = (
        f"No instance answers queries of application {config.application_id!r}. Start one with "
        f"`headrace serve {name}`, or run the application with the setting `application.server`."
    )
    return QueryError(msg)


def _config_of(application: str, target: Target | None, broker: BrokerOptions) -> StreamsConfig:
    if target is None:
        return broker.config().with_settings(application_id=application)
    return named(broker.config(code_of(target)), target)
