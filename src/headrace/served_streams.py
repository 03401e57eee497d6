"""The service that answers queries while an application runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.config import StreamsConfig
from headrace.errors import ConfigError
from headrace.topology.topology import Topology

if TYPE_CHECKING:
    from headrace.queries.coordination.coordinator import Coordinator
    from headrace.queries.instance import Instance
    from headrace.queries.service import QueryService


class ServedStreams:
    """An application that answers queries at its ``application.server``, if it has one."""

    config: StreamsConfig
    topology: Topology

    def __init__(self) -> None:
        self._service: QueryService | None = None

    @property
    def instance(self) -> Instance:
        """The instance of this process, for `create_app`; the application must run.

        Without an `application_server` it is a private copy of all stores, which it starts.
        """
        if self._service is None and self.config.application_server is None:
            return self._private_instance()
        return self._running_service().instance

    def _private_instance(self) -> Instance:
        """Return the private copy of this process, which starts if it has not yet."""
        raise NotImplementedError

    @property
    def coordinator(self) -> Coordinator:
        """Answers for the whole application, for `create_app`; the server of queries must run."""
        return self._running_service().coordinator

    def _running_service(self) -> QueryService:
        service = self._service
        if service is None or not service.is_started:
            from headrace.queries.problems import ProblemCode, QueryProblemError

            raise QueryProblemError(
                ProblemCode.STORE_NOT_READY,
                "The application does not answer queries yet. Start it, and ask again soon.",
                retry_after_ms=1_000,
            )
        return service

    def _start_service(self) -> None:
        """Answer queries from now on, if there is an address; nothing waits for that.

        Raises:
            ConfigError: A package is missing, or the settings of the server are wrong.
        """
        if self.config.application_server is None:
            return
        with extra_needed("server", "`application.server`"):
            from headrace.queries.service import QueryService

        self._service = QueryService(self.topology, self.config, restarts=True)
        self._service.start_in_background()

    def _close_service(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            service.close()


@contextmanager
def extra_needed(extra: str, what: str) -> Iterator[None]:
    """Raise a `ConfigError` that names the extra to install if an import fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        msg = (
            f"{what} needs {error.name!r}, which is not installed. "
            f"Install it with `pip install 'headrace[{extra}]'`."
        )
        raise ConfigError(msg) from error
