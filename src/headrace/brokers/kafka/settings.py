"""Settings of Kafka's Java clients, as librdkafka names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from headrace.errors import ConfigError

Kind: TypeAlias = Literal["producer", "consumer", "admin"]

# Names that differ between the Java clients and librdkafka.
_RENAMED = {
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "request.timeout.ms": "socket.timeout.ms",
}
# Settings that the clients of Headrace handle themselves.
_OURS = {
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "enable.auto.commit",
    "group.id",
    "max.block.ms",
    "max.poll.records",
    "partitioner.class",
    "transactional.id",
}
# With the newer group protocol the broker decides these.
_BROKERS = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
_STORES = {
    "ssl.truststore.location": "`ssl_ca_location` (a PEM file)",
    "ssl.truststore.password": "`ssl_ca_location`, which needs no password",
}
_JAAS = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b")
_JAAS_OPTION = re.compile(r"(\w+)\s*=\s*\"((?:[^\"\\]|\\.)*)\"")
_LOGIN_MODULES = {"PlainLoginModule", "ScramLoginModule"}


def client_settings(kind: Kind, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of one client of librdkafka.

    Raises `ConfigError` without values, which may be secret, if a setting cannot be followed.
    """
    translated: dict[str, str] = {}
    for name, value in settings.items():
        if name not in _OURS:
            translated |= _translated(name, value)
    if kind == "producer":
        # The broker refuses large records: a topic may allow more than the client's default.
        translated.setdefault("message.max.bytes", str(64 << 20))
    elif kind == "consumer" and translated.get("group.protocol") == "consumer":
        return {name: value for name, value in translated.items() if name not in _BROKERS}
    return translated


def _translated(name: str, value: str) -> dict[str, str]:
    if name in _STORES:
        msg = f"`{name}` is a file of Java's. Use {_STORES[name]} instead."
        raise ConfigError(msg)
    if name == "sasl.jaas.config":
        return _from_jaas(value)
    if name == "batch.size":
        return {name: str(max(1, int(value)))}  # Java's 0 is librdkafka's 1: no batching
    if name == "buffer.memory":
        return {"queue.buffering.max.kbytes": str(max(1, int(value) // 1024))}
    if name == "ssl.endpoint.identification.algorithm" and not value:
        msg = (
            "`ssl_endpoint_identification_algorithm` is empty, so any server with a trusted "
            'certificate could pose as the broker. Set it to "none" to allow that.'
        )
        raise ConfigError(msg)
    return {_RENAMED.get(name, name): value}


def _from_jaas(text: str) -> dict[str, str]:
    """Return user and password of a login module; no other module is ever followed."""
    match = _JAAS.match(text)
    module = match["module"].rpartition(".")[2] if match else ""
    if module not in _LOGIN_MODULES:
        msg = (
            "`sasl.jaas.config` names a login module that cannot be followed. "
            f"Use {' or '.join(sorted(_LOGIN_MODULES))}, or `sasl_username` and `sasl_password`."
        )
        raise ConfigError(msg)
    options = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS_OPTION.findall(text)}
    if not {"username", "password"} <= options.keys():
        msg = "`sasl.jaas.config` has no username or no password. Give both in double quotes."
        raise ConfigError(msg)
    return {"sasl.username": options["username"], "sasl.password": options["password"]}
