"""Functions that do not fit the types of the stream are refused."""

from __future__ import annotations

from headrace import KStream, StreamsBuilder

builder = StreamsBuilder()
lines = builder.stream("lines", key=str, value=str)
numbers = builder.stream("numbers", key=str, value=int)

lines.filter(lambda key, line: line + 1)  # E: operator; pyright: reportOperatorIssue
lines.filter(lambda line: True)  # E: arg-type,misc; pyright: reportArgumentType
numbers.map_values(len)  # E: arg-type; pyright: reportArgumentType,reportCallIssue
lines.merge(numbers)  # E: arg-type; pyright: reportArgumentType
lines.map(lambda key, line: line)  # E: arg-type,return-value; pyright: reportArgumentType
lines.to(7)  # E: arg-type; pyright: reportArgumentType
lines.to("out", name=3)  # E: arg-type; pyright: reportArgumentType
lines.fliter(lambda key, line: True)  # E: attr-defined; pyright: reportAttributeAccessIssue
longer: KStream[str, str] = lines.map_values(len)  # E: arg-type; pyright: reportAssignmentType
builder.stream("one", key=str, values=int)  # E: call-overload; pyright: reportCallIssue
