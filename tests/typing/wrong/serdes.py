"""A serde of another type is refused."""

from __future__ import annotations

from headrace import Serde, Serdes, StreamsBuilder

text: Serde[str] = Serdes.long()  # E: assignment; pyright: reportAssignmentType
Serdes.string().serialize(1)  # E: arg-type; pyright: reportArgumentType

builder = StreamsBuilder()
lines = builder.stream("lines", key=str, value=str)
lines.to("out", value=Serdes.long())  # E: arg-type; pyright: reportArgumentType
lines.map_values(len, value=str)  # E: arg-type
