"""Brokers die and come back: the only one, or the one of three that leads what is needed."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from chaos.processes import lives
from chaos.scene import Fault, NothingHappenedError, Scene, await_that
from chaos.sites import KafkaSite
from tests.kafka_broker import RunningBroker

_LONGEST_DOWN = 4.0
_ASK_SECONDS = 30.0

Choice = Callable[[Scene], RunningBroker]


def _restart(choose: Choice, *, orderly: bool) -> Callable[[Scene], str]:
    def inflict(scene: Scene) -> str:
        broker = choose(scene)
        seconds = scene.chance.uniform(0.1, _LONGEST_DOWN)
        if not lives(broker.pid):
            msg = f"Node {broker.node} had ended before."
            raise NothingHappenedError(msg)
        with scene.feeder.paused():
            broker.stop() if orderly else broker.kill()
            time.sleep(seconds)
            broker.start()
            broker.await_ready()
        return f"node {broker.node} down for {seconds:.1f} s"

    return inflict


def _any(scene: Scene) -> RunningBroker:
    return scene.chance.choice(_site(scene).brokers)


def _leader_of(topic_of: Callable[[Scene], str]) -> Choice:
    def choose(scene: Scene) -> RunningBroker:
        site, topic = _site(scene), topic_of(scene)
        admin = AdminClient({"bootstrap.servers": site.address})
        found: list[RunningBroker] = []

        def is_led() -> bool:
            partitions = admin.list_topics(topic, timeout=_ASK_SECONDS).topics[topic].partitions
            leaders = [each.leader for _, each in sorted(partitions.items())]
            leader = scene.chance.choice(leaders) if leaders else None
            found[:] = [broker for broker in site.brokers if broker.node == leader]
            return bool(found)

        if not await_that(is_led, _ASK_SECONDS):
            msg = f"{topic!r} had no leader."
            raise NothingHappenedError(msg)
        return found[0]

    return choose


def _output(scene: Scene) -> str:
    return scene.chance.choice(sorted(scene.outputs))


def _site(scene: Scene) -> KafkaSite:
    assert isinstance(scene.site, KafkaSite), "only Kafka has brokers"
    return scene.site


_ONE, _THREE = frozenset({"kafka"}), frozenset({"cluster"})

FAULTS = (
    Fault("kill-broker", _restart(_any, orderly=False), _ONE),
    # Not of the only one: Kafka loses transactions then, as `chaos.lost_ends` shows.
    Fault("restart-broker", _restart(_any, orderly=True), _THREE),
    Fault("kill-leader", _restart(_leader_of(_output), orderly=False), _THREE),
    # The brokers have one partition of each: its leader coordinates everything.
    Fault(
        "kill-transaction-coordinator",
        _restart(_leader_of(lambda _: "__transaction_state"), orderly=False),
        _THREE,
        transactional=True,
    ),
    Fault(
        "kill-group-coordinator",
        _restart(_leader_of(lambda _: "__consumer_offsets"), orderly=False),
        _THREE,
    ),
)
