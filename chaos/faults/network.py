"""The network between the application and its brokers breaks, stands still or is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from chaos.scene import Fault, NothingHappenedError, Scene, await_that
from chaos.sites import KafkaSite
from tests.tcp_proxy import Direction, Request, TcpProxy

_KAFKA = frozenset({"kafka", "cluster"})
_LONGEST_FAULT = 5.0
_SHORTEST_DELAY, _LONGEST_DELAY = 0.05, 0.3
_REQUEST_SECONDS = 30.0
REQUESTS = (
    Request.END_TRANSACTION,
    Request.ADD_PARTITIONS,
    Request.PRODUCE,
    Request.ADD_OFFSETS,
    Request.COMMIT_OFFSETS,
    Request.INIT_PRODUCER_ID,
)
"""The requests of a transaction; one after the other is lost, round by round."""


def _for_a_while(fault: Callable[[TcpProxy, Scene], None]) -> Callable[[Scene], str]:
    """Return a fault of the way to one broker, or to all of them."""

    def inflict(scene: Scene) -> str:
        proxies = _proxies(scene)
        hit = scene.chance.choice([proxies, [scene.chance.choice(proxies)]])
        seconds = scene.chance.uniform(0.2, _LONGEST_FAULT)
        before = sum(proxy.met for proxy in hit)
        for proxy in hit:
            fault(proxy, scene)
        time.sleep(seconds)
        for proxy in hit:
            proxy.heal()
        if sum(proxy.met for proxy in hit) == before:
            msg = f"Nothing came by {len(hit)} of {len(proxies)} in {seconds:.1f} s."
            raise NothingHappenedError(msg)
        return f"{len(hit)} of {len(proxies)} for {seconds:.1f} s"

    return inflict


def _cut(proxy: TcpProxy, _: Scene) -> None:
    proxy.cut()


def _stall(proxy: TcpProxy, scene: Scene) -> None:
    directions: list[tuple[Direction, ...]] = [(), ("to_broker",), ("to_client",)]
    proxy.stall(*scene.chance.choice(directions))


def _delay(proxy: TcpProxy, scene: Scene) -> None:
    proxy.delay(scene.chance.uniform(_SHORTEST_DELAY, _LONGEST_DELAY))


def _lose_answer(scene: Scene) -> str:
    """Break the connection after a broker did what a transaction asked for, before it says so."""
    request, proxies = scene.next_of(REQUESTS), _proxies(scene)
    for proxy in proxies:
        proxy.on_request(request, partial(_silence, proxy), arrives=True)
    is_met = await_that(lambda: any(each.trapped.is_set() for each in proxies), _REQUEST_SECONDS)
    for proxy in proxies:
        proxy.on_request(request, lambda: None)  # those without a connection
    if not is_met:
        msg = f"No client sent {request.name} within {_REQUEST_SECONDS:g} s."
        raise NothingHappenedError(msg)
    return request.name.lower()


def _silence(proxy: TcpProxy) -> None:
    """Break the connections there are; not even what is on its way comes through."""
    proxy.freeze()
    proxy.drop()


def _proxies(scene: Scene) -> list[TcpProxy]:
    assert isinstance(scene.site, KafkaSite), "only Kafka is reached over a network"
    return scene.site.proxies


FAULTS = (
    Fault("cut", _for_a_while(_cut), _KAFKA),
    Fault("stall", _for_a_while(_stall), _KAFKA),
    Fault("delay", _for_a_while(_delay), _KAFKA),
    Fault("lost-answer", _lose_answer, _KAFKA, transactional=True),
)
