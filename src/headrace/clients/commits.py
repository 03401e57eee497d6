"""Commits that nobody waits for."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

from headrace.brokers import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import ConsumerSession
from headrace.errors import StreamsError

_log = logging.getLogger(__name__)

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit: TypeAlias = Callable[[Offsets, StreamsError | None], None]
"""f(offsets, error), called once per commit."""


class _Commit(NamedTuple):
    offsets: Offsets
    on_completion: OnCommit | None
    future: Future[None]


class AsyncCommits:
    """Commits in the order they were started, on a thread of its own."""

    def __init__(self, session: ConsumerSession) -> None:
        self._session = session
        self._thread: ThreadPoolExecutor | None = None
        self._started: deque[_Commit] = deque()

    def start(self, offsets: Offsets, on_completion: OnCommit | None) -> None:
        """Commit soon."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        future = self._thread.submit(self._session.commit, offsets)
        self._started.append(_Commit(offsets, on_completion, future))

    def report(self) -> None:
        """Tell how the commits went that have ended, on the caller's thread."""
        while self._started and self._started[0].future.done():
            self._tell(self._started.popleft())

    def finish(self) -> None:
        """Wait for all commits, so that a later one is not overtaken, and tell how they went."""
        while self._started:
            self._tell(self._started.popleft())

    def close(self) -> None:
        """End the thread."""
        self.finish()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _tell(self, commit: _Commit) -> None:
        error = commit.future.exception()
        if error is not None and not isinstance(error, StreamsError):
            raise error
        if commit.on_completion is not None:
            commit.on_completion(commit.offsets, error)
        elif error is not None:
            _log.warning("Offsets were not committed: %s", error)
