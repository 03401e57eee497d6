"""A schema registry for the workloads that need one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from chaos.registry import REGISTRY, Registry


@pytest.fixture(scope="session", autouse=True)
def registry() -> Iterator[Registry]:
    """A registry whose URL is where workloads look for it."""
    environment = pytest.MonkeyPatch()
    with closing(Registry()) as registry:
        environment.setenv(REGISTRY, registry.url)
        yield registry
    environment.undo()
