"""Kafka's names that are no setting of Headrace, and how Headrace treats them."""

from __future__ import annotations

ALIASES = {
    "default.deserialization.exception.handler": "deserialization.exception.handler",
    "default.production.exception.handler": "production.exception.handler",
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",
    "dsl.store.suppliers.class": "default.dsl.store",
}
"""Other names of a setting that Kafka has or had; where both are given the setting's own wins."""

_SPARK_PLACES_TASKS = "Spark places the tasks."
_SPARK_KEEPS_STATE = "Spark keeps the state; set `spark.sql.streaming.stateStore.` names instead."
_NO_REBALANCE = "Tasks belong to no consumer group, so nothing is rebalanced."
_OWN_METRICS = "Metrics are gathered per batch, and read with `metrics()`."

WITHOUT_EFFECT = {
    "acceptable.recovery.lag": _SPARK_PLACES_TASKS,
    "allow.os.group.write.access": _SPARK_KEEPS_STATE,
    "built.in.metrics.version": _OWN_METRICS,
    "dsl.store.format": "Stores have one format.",
    "enable.metrics.push": _OWN_METRICS,
    "group.protocol": _NO_REBALANCE,
    "max.warmup.replicas": _SPARK_PLACES_TASKS,
    "metric.reporters": _OWN_METRICS,
    "metrics.num.samples": _OWN_METRICS,
    "metrics.sample.window.ms": _OWN_METRICS,
    "poll.ms": "Batches follow `trigger`.",
    "probing.rebalance.interval.ms": _NO_REBALANCE,
    "rack.aware.assignment.non_overlap_cost": _SPARK_PLACES_TASKS,
    "rack.aware.assignment.strategy": _SPARK_PLACES_TASKS,
    "rack.aware.assignment.tags": _SPARK_PLACES_TASKS,
    "rack.aware.assignment.traffic_cost": _SPARK_PLACES_TASKS,
    "repartition.purge.interval.ms": "Headrace deletes processed records every 30 s.",
    "rocksdb.config.setter": _SPARK_KEEPS_STATE,
    "state.cleanup.delay.ms": _SPARK_KEEPS_STATE,
    "state.cleanup.dir.max.age.ms": _SPARK_KEEPS_STATE,
    "task.assignor.class": _SPARK_PLACES_TASKS,
    "topology.description.push.enabled": "Brokers do not get the topology.",
    "upgrade.from": "There is no version of Kafka Streams to upgrade from.",
}
"""Settings of Kafka Streams that change no result: accepted in a mapping or a file, and logged."""

_WINDOWED = "Give `key=Serdes.time_windowed(inner, size)` where the topic is read."
_LIST = "Use `default.key.serde` or `default.value.serde` with `Serdes.list_of(inner)`."

REFUSED = {
    "default.client.supplier": "Remove it: clients are configured with `consumer.`, `producer.`…",
    "default.list.key.serde.inner": _LIST,
    "default.list.key.serde.type": _LIST,
    "default.list.value.serde.inner": _LIST,
    "default.list.value.serde.type": _LIST,
    "processor.wrapper.class": "Remove it, and wrap the suppliers in the program.",
    "window.size.ms": _WINDOWED,
    "windowed.inner.class.serde": _WINDOWED,
}
"""Settings that would change results and that Headrace does not have, with the alternative."""

CONSUMER_NAMES = frozenset({
    "auto.offset.reset", "check.crcs", "client.rack", "enable.auto.commit",
    "auto.commit.interval.ms", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
    "group.id", "group.instance.id", "heartbeat.interval.ms", "isolation.level",
    "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records", "session.timeout.ms",
})  # fmt: skip
PRODUCER_NAMES = frozenset({
    "acks", "batch.size", "buffer.memory", "compression.type", "delivery.timeout.ms",
    "enable.idempotence", "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection",
    "max.request.size", "retries", "transaction.timeout.ms", "transactional.id",
})  # fmt: skip
"""Settings of one kind of client; Kafka Streams takes them without a prefix too."""

SECURITY_PREFIXES = ("ssl.", "sasl.")
"""Names of every client, of which there are more than the settings that are listed."""


def clients_of(name: str) -> tuple[str, ...]:
    """Return the keywords of the clients that a name without prefix is meant for."""
    if name in CONSUMER_NAMES:
        return ("consumer",)
    if name in PRODUCER_NAMES:
        return ("producer",)
    if name.startswith(SECURITY_PREFIXES):
        return ("consumer", "producer", "admin")
    return ()
