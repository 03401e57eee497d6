"""Schema registries: where schemas get the numbers that records carry, in Confluent's format."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    cast,
    runtime_checkable,
)

from headrace.errors import ConfigError, SchemaRegistryUnavailableError, StreamsError, TopologyError
from headrace.serdes.base import T

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema as ConfluentSchema
    from confluent_kafka.schema_registry import SchemaRegistryClient

SchemaType: TypeAlias = Literal["AVRO", "PROTOBUF", "JSON"]

_FRAME = struct.Struct(">bI")
_MOST_IMPORTS = 100
_TIMEOUT_SECONDS = 10
"""For one request. Without a timeout the client would wait for ever."""
# The registry's codes for an unknown subject, version and schema, and for a refused schema.
_DATA_ERRORS = {40401, 40402, 40403, 409, 40901, 42201}
FRAME_SIZE = _FRAME.size
"""How many bytes stand before the payload: a zero, and the number of its schema."""


class _ImportsError(Exception):
    """A schema imports too many others."""


class Schema(NamedTuple):
    """A schema as a registry keeps it."""

    text: str
    """The schema: JSON for Avro, a descriptor in base64 for Protobuf."""
    schema_type: SchemaType
    references: tuple[SchemaReference, ...] = ()
    """The schemas this one imports."""


class SchemaReference(NamedTuple):
    """A schema that another one imports."""

    name: str
    """Its name in the importing schema."""
    subject: str
    """Its subject in the registry."""
    schema: Schema
    """The imported schema."""


@runtime_checkable
class SchemaRegistry(Protocol):
    """Gives schemas numbers, and finds them again by number."""

    def register(self, subject: str, schema: Schema, /) -> int:
        """Return the number of ``schema``; add it to ``subject`` if it is not there yet.

        Raises:
            ValueError: The registry refuses the schema.
            SchemaRegistryUnavailableError: The registry does not answer.
        """
        ...

    def schema_of(self, schema_id: int, /) -> Schema:
        """Return the schema with this number.

        Raises:
            ValueError: There is none.
            SchemaRegistryUnavailableError: The registry does not answer.
        """
        ...


class ConfluentSchemaRegistry(SchemaRegistry):
    """Confluent's schema registry, or one that speaks like it, over HTTP.

    Args:
        config: The URL, or the settings of Confluent's client (``url``, ``basic.auth.user.info``,
            …), or such a client. Spark's workers make their own client with the same settings.
        auto_register: Whether to add schemas that are missing (``auto.register.schemas``).
            Otherwise a missing one is an error.
    """

    def __init__(
        self, config: str | Mapping[str, Any] | SchemaRegistryClient, *, auto_register: bool = True
    ) -> None:
        self._client: SchemaRegistryClient | None = None
        if isinstance(config, str):
            settings: Mapping[str, Any] = {"url": config}
        elif isinstance(config, Mapping):
            settings = config
        elif hasattr(config, "register_schema"):
            client: Any = config
            self._client, settings = client, client.config()
        else:
            msg = (
                f"A schema registry is needed, but got {type(config).__name__}. "
                "Give its URL, its settings, or Confluent's client."
            )
            raise TopologyError(msg)
        self._config = _with_secrets_apart({"timeout": _TIMEOUT_SECONDS, **settings})
        self._auto_register = auto_register

    def register(self, subject: str, schema: Schema, /) -> int:
        with _translated(f"number the schema of {subject!r}"):
            confluent_schema = self._to_confluent(schema)
            if self._auto_register:
                schema_id = self.client.register_schema(subject, confluent_schema)
            else:
                registered = self.client.lookup_schema(subject, confluent_schema)
                schema_id = _known(registered.schema_id)
        return schema_id

    def schema_of(self, schema_id: int, /) -> Schema:
        with _translated(f"give schema {schema_id}"):
            return self._from_confluent(self.client.get_schema(schema_id), count())

    @property
    def client(self) -> SchemaRegistryClient:
        """Confluent's client, made when it is first needed."""
        if self._client is None:
            self._client = _client_from_settings(self._config)
        return self._client

    def _to_confluent(self, schema: Schema) -> ConfluentSchema:
        confluent = _confluent()
        references = []
        for name, subject, imported in schema.references:
            confluent_schema = self._to_confluent(imported)
            if self._auto_register:
                self.client.register_schema(subject, confluent_schema)
            version = self.client.lookup_schema(subject, confluent_schema).version
            references.append(confluent.SchemaReference(name, subject, version))
        result: ConfluentSchema = confluent.Schema(schema.text, schema.schema_type, references)
        return result

    def _from_confluent(self, schema: ConfluentSchema, imports: Iterator[int]) -> Schema:
        references = []
        for reference in schema.references or ():
            if next(imports) >= _MOST_IMPORTS:
                msg = f"it imports more than {_MOST_IMPORTS} others"
                raise _ImportsError(msg)
            subject, version = _known(reference.subject), _known(reference.version)
            imported = self._from_confluent(
                self.client.get_version(subject, version).schema, imports
            )
            references.append(SchemaReference(_known(reference.name), subject, imported))
        # The registry leaves the type out if it is Avro.
        kind = cast(SchemaType, schema.schema_type or "AVRO")
        return Schema(_known(schema.schema_str), kind, tuple(references))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfluentSchemaRegistry):
            return NotImplemented
        return (self._config, self._auto_register) == (other._config, other._auto_register)

    def __hash__(self) -> int:
        return hash((ConfluentSchemaRegistry, self._auto_register))

    def __repr__(self) -> str:
        return f"ConfluentSchemaRegistry({_redacted(str(self._config.get('url')))!r})"

    # A client holds connections, so another one is made where this is shipped to.
    def __reduce__(self) -> tuple[object, ...]:
        return partial(ConfluentSchemaRegistry, auto_register=self._auto_register), (self._config,)


RegistryLike: TypeAlias = "SchemaRegistry | str | Mapping[str, Any] | SchemaRegistryClient"
"""The argument of `registry=`: a registry, or the URL, settings or client of Confluent's."""


def schema_registry(registry: RegistryLike) -> SchemaRegistry:
    """Return the registry that `registry=` means."""
    if isinstance(registry, SchemaRegistry):
        return registry
    return ConfluentSchemaRegistry(registry)


def subject_of(topic: str, *, is_key: bool) -> str:
    """Return the subject of a topic's keys or values (Confluent's ``TopicNameStrategy``)."""
    return f"{topic}-key" if is_key else f"{topic}-value"


def registered_frame(registry: SchemaRegistry, subject: str | None, schema: Schema) -> bytes:
    """Register a schema, and return the bytes that stand before what is written with it."""
    if subject is None:
        msg = (
            "A serde with a schema registry writes for a topic, and this one has none. "
            'Use `.for_topic("…", is_key=…)`.'
        )
        raise ValueError(msg)
    return _FRAME.pack(0, registry.register(subject, schema))


def framed_schema_id(data: bytes) -> int:
    """Return the number of the schema that a framed payload was written with."""
    if len(data) < FRAME_SIZE or data[0] != 0:
        msg = (
            "The data does not start with a zero and the number of its schema, as schema "
            "registries require. Read it with the serde that wrote it, or without `registry=`."
        )
        raise ValueError(msg)
    schema_id: int = _FRAME.unpack_from(data)[1]
    return schema_id


def _confluent() -> ModuleType:
    try:
        from confluent_kafka import schema_registry
    except ImportError as error:
        msg = 'A schema registry needs an extra: `pip install "headrace[registry]"`.'
        raise ModuleNotFoundError(msg) from error
    return schema_registry


def _client_from_settings(config: dict[str, Any]) -> SchemaRegistryClient:
    try:
        client: SchemaRegistryClient = _confluent().SchemaRegistryClient.new_client(config)
    except (ValueError, TypeError, OSError) as error:
        msg = f"The settings of the schema registry cannot be used: {_redacted(str(error))}."
        raise ConfigError(msg) from None
    return client


@contextmanager
def _translated(task: str) -> Iterator[None]:
    """Turn the errors of Confluent's client into ours, without the secrets of its settings.

    An unknown or incompatible schema is an error of the data, a `ValueError`. In all other cases
    the registry is unavailable; the client has retried then (``max.retries``).
    """
    try:
        yield
    except (StreamsError, ModuleNotFoundError, MemoryError):
        raise
    except Exception as error:
        reason = _redacted(str(error)) or type(error).__name__
        msg = f"The schema registry did not {task}: {reason.rstrip('.')}."
        if isinstance(error, _ImportsError) or getattr(error, "error_code", 0) in _DATA_ERRORS:
            raise ValueError(msg) from None
        msg += " Check its URL, its credentials, and that it runs."
        raise SchemaRegistryUnavailableError(msg) from None


def _known(value: T | None) -> T:
    if value is None:
        msg = "its answer is incomplete"
        raise LookupError(msg)
    return value


_IN_URL = re.compile(r"(?<=://)([^/\s]*)@")


def _redacted(text: str) -> str:
    return _IN_URL.sub("", text)


def _with_secrets_apart(config: Mapping[str, Any]) -> dict[str, Any]:
    """Move user and password out of the URL, which HTTP libraries log."""
    url = config.get("url")
    userinfo = _IN_URL.search(url) if isinstance(url, str) else None
    if userinfo is None or ":" not in userinfo[1] or "basic.auth.user.info" in config:
        return dict(config)
    encoded, percent = userinfo[1].encode(), rb"%([0-9a-fA-F]{2})"
    secret = re.sub(percent, lambda code: bytes.fromhex(code[1].decode()), encoded).decode()
    return {**config, "url": _redacted(str(url)), "basic.auth.user.info": secret}
