"""A slow interpreter of each workload, in plain loops over the input log.

Written from the semantics of Kafka Streams; it shares no code with the runtime. For each workload
it has the expected results, and a function that reads them from the outputs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from chaos.contract import MAX_RECORD_BYTES, Expected, Lane, Lanes, Log, Logged

_REASONS = {
    "RecursionError": "processing",
    "UnknownTopicError": "production",
    "RecordRefusedError": "refused",
}
"""Why a record was dropped, by the class of the error that its dead letter names."""

WINDOW_MS, GRACE_MS = 2_000, 1_000
JOIN_MS, JOIN_GRACE_MS = 60_000, 10_000


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Kafka's producer chooses it by its murmur2 hash."""
    mix, mask = 0x5BD1E995, 0xFFFF_FFFF
    hashed = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for position in range(0, whole, 4):
        word = int.from_bytes(key[position : position + 4], "little") * mix & mask
        hashed = (hashed * mix ^ (word ^ word >> 24) * mix) & mask
    if rest := key[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * mix & mask
    hashed = (hashed ^ hashed >> 13) * mix & mask
    return ((hashed ^ hashed >> 15) & 0x7FFF_FFFF) % partitions


def decoded(value: bytes | None) -> Any:
    """Return a decoded JSON value; None stays None."""
    return None if value is None else json.loads(value)


def running_aggregate(inputs: Log) -> Expected:
    """Each event is echoed, and counted and summed by its key."""
    lanes: Lanes = {}
    totals = _totals_by_key(lanes, "running-totals", 3, inputs["running-events"])
    for record in _in_offset_order(inputs["running-events"]):
        lane = _lane("running-echo", record.key, 3)
        lanes.setdefault(lane, []).append((decoded(record.value)["id"], record.timestamp))
    return Expected(lanes, {"running-store": totals})


def running_aggregate_seen(outputs: Log) -> Lanes:
    """Read the results of `running_aggregate` from the outputs."""
    lanes: Lanes = {}
    for record in _in_offset_order(outputs["running-echo"]):
        value = decoded(record.value)
        lanes.setdefault(_seen_lane(record), []).append((value["id"], record.timestamp))
    _add_totals_seen(lanes, outputs["running-totals"])
    return lanes


def cached_aggregate(inputs: Log) -> Expected:
    """As running_aggregate; which totals show is decided by timing, but the last of a key does."""
    every = running_aggregate(inputs)
    possible: dict[Lane, dict[Any, Any]] = {}
    lanes: Lanes = {}
    for lane, results in every.lanes.items():
        if lane[0] == "running-echo":
            lanes[lane] = results
        else:
            possible[("any", *lane)] = {result: rank for rank, result in enumerate(results)}
            lanes[("last", *lane)] = results[-1:]
    return Expected(lanes, every.stores, possible)


def cached_aggregate_seen(outputs: Log) -> Lanes:
    """Read the results of `cached_aggregate` from the outputs."""
    lanes: Lanes = {}
    for lane, results in running_aggregate_seen(outputs).items():
        if lane[0] == "running-echo":
            lanes[lane] = results
        else:
            lanes[("any", *lane)] = [(result, None) for result in results]
            lanes[("last", *lane)] = results[-1:]
    return lanes


def rekeyed_aggregate(inputs: Log) -> Expected:
    """Events are counted and summed by the group they name.

    Records of one group come from several partitions, in an undefined order. So there is a lane for
    each source partition, and each result must have added one record to the one before.
    """
    lanes: Lanes = {}
    totals: dict[bytes, Any] = {}
    for record in _in_offset_order(inputs["rekeyed-events"]):
        value = decoded(record.value)
        group = value["group"].encode()
        lane = (*_lane("rekeyed-totals", group, 2), _source_of(value["id"]))
        lanes.setdefault(lane, []).append((value["id"], (1, value["amount"])))
        total = totals.setdefault(group, {"count": 0, "sum": 0})
        total["count"] += 1
        total["sum"] += value["amount"]
    return Expected(lanes, {"rekeyed-store": totals})


def rekeyed_aggregate_seen(outputs: Log) -> Lanes:
    """Read the results of `rekeyed_aggregate` from the outputs."""
    lanes: Lanes = {}
    before: dict[bytes | None, tuple[int, int]] = {}
    for record in _in_offset_order(outputs["rekeyed-totals"]):
        value = decoded(record.value)
        count, total = before.get(record.key, (0, 0))
        step = (value["count"] - count, value["sum"] - total)
        before[record.key] = value["count"], value["sum"]
        lane = (*_seen_lane(record), _source_of(value["id"]))
        lanes.setdefault(lane, []).append((value["id"], step))
    return lanes


def windowed_suppress(inputs: Log) -> Expected:
    """Events are counted by key and tumbling window; each window shows once, when it is closed."""
    lanes: Lanes = {}
    state: dict[bytes, Any] = {}
    for records in inputs["windowed-events"].values():
        stream_time = -1
        waiting: dict[tuple[int, bytes], tuple[dict[str, Any], int]] = {}
        for record in records:
            assert record.key is not None
            stream_time = max(stream_time, record.timestamp)
            start = record.timestamp - record.timestamp % WINDOW_MS
            if start + WINDOW_MS <= stream_time - GRACE_MS:
                continue  # too late
            value = decoded(record.value)
            total, latest = waiting.get((start, record.key), ({"count": 0, "sum": 0}, -1))
            total = {
                "count": total["count"] + 1,
                "sum": total["sum"] + value["amount"],
                "id": value["id"],
            }
            waiting[start, record.key] = total, max(latest, record.timestamp)
            # A window store's changelog appends the start and a sequence number that stays 0.
            state[record.key + start.to_bytes(8, "big") + bytes(4)] = total
            change = (value["id"], (start, total, waiting[start, record.key][1]))
            lanes.setdefault(_lane("windowed-changes", record.key, 3), []).append(change)
            for first, key in sorted(waiting):
                if first + WINDOW_MS + GRACE_MS <= stream_time:
                    lane = _lane("windowed-totals", key, 3)
                    lanes.setdefault(lane, []).append((first, waiting.pop((first, key))))
    _add_echo(lanes, "windowed-echo", inputs["windowed-events"])
    return Expected(lanes, {"windowed-store": state})


def windowed_suppress_seen(outputs: Log) -> Lanes:
    """Read the results of `windowed_suppress` from the outputs."""
    lanes: Lanes = {}
    for topic in ("windowed-totals", "windowed-changes"):
        for record in _in_offset_order(outputs[topic]):
            assert record.key is not None
            key, start = record.key[:-8], int.from_bytes(record.key[-8:], "big")
            lane, total = (record.topic, record.partition, key), decoded(record.value)
            result: tuple[Any, Any] = (start, (total, record.timestamp))
            change: tuple[Any, Any] = (total["id"], (start, total, record.timestamp))
            shown = result if topic == "windowed-totals" else change
            lanes.setdefault(lane, []).append(shown)
    _add_echo(lanes, "windowed-echo", outputs["windowed-echo"])
    return lanes


def outer_join(inputs: Log) -> Expected:
    """Left and right events of one key and time are joined; those without a partner show alone.

    An event has waited long enough when the time of its partition has passed the window and the
    grace after it. Times leap from act to act, so that within one act any order gives the same.
    """
    lanes: Lanes = {}
    state: dict[bytes, Any] = {}
    _add_echo(lanes, "join-left-echo", inputs["join-left"])
    _add_echo(lanes, "join-right-echo", inputs["join-right"])
    for partition in inputs["join-left"]:
        left, right = inputs["join-left"][partition], inputs["join-right"][partition]
        stream_time = max((record.timestamp for record in [*left, *right]), default=-1)
        by_key: dict[bytes | None, list[Logged]] = {}
        for record in right:
            by_key.setdefault(record.key, []).append(record)
        results: list[tuple[int, Logged | None, Logged | None]] = [
            (max(here.timestamp, there.timestamp), here, there)
            for here in left
            for there in by_key.get(here.key, [])
            if abs(here.timestamp - there.timestamp) <= JOIN_MS
        ]
        joined = {record for result in results for record in result[1:]}
        for record in [*left, *right]:
            closed = record.timestamp + JOIN_MS + JOIN_GRACE_MS < stream_time
            if closed and record not in joined:
                pair = (record, None) if record.topic == "join-left" else (None, record)
                results.append((record.timestamp, *pair))
        for timestamp, here, there in sorted(results, key=lambda result: result[0]):
            found = here or there
            assert found is not None
            assert found.key is not None
            ids = _id_of(here), _id_of(there)
            lanes.setdefault(_lane("join-results", found.key, 3), []).append((ids, timestamp))
            _collect(lanes, "join-collected", state, found.key, ids)
    return Expected(lanes, {"join-store": state})


def outer_join_seen(outputs: Log) -> Lanes:
    """Read the results of `outer_join` from the outputs."""
    lanes: Lanes = {}
    for record in _in_offset_order(outputs["join-results"]):
        value = decoded(record.value)
        result = ((value["left"], value["right"]), record.timestamp)
        lanes.setdefault(_seen_lane(record), []).append(result)
    _add_collected_seen(lanes, outputs["join-collected"])
    for topic in ("join-left-echo", "join-right-echo"):
        _add_echo(lanes, topic, outputs[topic])
    return lanes


def rekeyed_join(inputs: Log) -> Expected:
    """Clicks are joined with the visit of the user they name, if it is of about the same time.

    Clicks of one user come from several partitions, in an undefined order, so there is a lane for
    each source partition. A user has one visit at most, so that the clicks of such a lane
    show in their order, whatever comes first: clicks or visit.
    """
    lanes: Lanes = {}
    state: dict[bytes, Any] = {}
    visits: dict[bytes, list[Logged]] = {}
    _add_echo(lanes, "visit-echo", inputs["visits"])
    for record in _in_offset_order(inputs["visits"]):
        assert record.key is not None
        visits.setdefault(record.key, []).append(record)
    for click in _in_offset_order(inputs["clicks"]):
        value = decoded(click.value)
        user, source = value["user"].encode(), _source_of(value["id"])
        echo = lanes.setdefault((*_lane("click-echo", user, 3), source), [])
        echo.append((value["id"], click.timestamp))
        for visit in visits.get(user, []):
            if abs(click.timestamp - visit.timestamp) <= JOIN_MS:
                pair = value["id"], _id_of(visit)
                result = (pair, max(click.timestamp, visit.timestamp))
                lane = (*_lane("visited-clicks", user, 3), source)
                lanes.setdefault(lane, []).append(result)
                _collect(lanes, "visited-collected", state, user, pair)
    return Expected(lanes, {"visited-store": state})


def rekeyed_join_seen(outputs: Log) -> Lanes:
    """Read the results of `rekeyed_join` from the outputs."""
    lanes: Lanes = {}
    for record in _in_offset_order(outputs["click-echo"]):
        identity = decoded(record.value)["id"]
        lane = (*_seen_lane(record), _source_of(identity))
        lanes.setdefault(lane, []).append((identity, record.timestamp))
    for record in _in_offset_order(outputs["visited-clicks"]):
        value = decoded(record.value)
        lane = (*_seen_lane(record), _source_of(value["left"]))
        result = ((value["left"], value["right"]), record.timestamp)
        lanes.setdefault(lane, []).append(result)
    _add_collected_seen(lanes, outputs["visited-collected"])
    _add_echo(lanes, "visit-echo", outputs["visit-echo"])
    return lanes


def foreign_key_join(inputs: Log) -> Expected:
    """Orders are joined with the product they name, if any; both change and are deleted.

    Which intermediate results show depends on which of two topics is read first. The final results
    do not, and no result shows twice or after one of a later order or product.
    """
    lanes: Lanes = {}
    possible: dict[Lane, dict[Any, Any]] = {}
    products: dict[str, list[Logged]] = {}
    for record in _in_offset_order(inputs["products"]):
        assert record.key is not None
        products.setdefault(record.key.decode(), []).append(record)
    _add_echo(lanes, "order-echo", inputs["orders"])
    _add_echo(lanes, "product-echo", inputs["products"])
    orders: dict[bytes, list[Logged]] = {}
    for record in _in_offset_order(inputs["orders"]):
        assert record.key is not None
        orders.setdefault(record.key, []).append(record)
    state: dict[bytes, Any] = {}
    for key, versions in orders.items():
        lane = _lane("priced-orders", key, 3)
        ranks = possible.setdefault(("any", *lane), {})
        turns = possible.setdefault(("turn", *lane), {})
        for order in versions:
            if order.value is None:
                continue
            turns[_id_of(order)] = order.offset
            for product in products.get(decoded(order.value)["product"], []):
                if product.value is not None:
                    ranks[_id_of(order), _id_of(product)] = (order.offset, product.offset)
        last = decoded(versions[-1].value)
        if last is not None:
            offered = products[last["product"]][-1] if last["product"] in products else None
            state[key] = {"order": last["id"], "product": _id_of(offered)}
            lanes["last", *lane] = [((last["id"], _id_of(offered)), None)]
    return Expected(lanes, {"priced-store": state}, possible)


def foreign_key_join_seen(outputs: Log) -> Lanes:
    """Read the results of `foreign_key_join` from the outputs."""
    lanes: Lanes = {}
    for record in _in_offset_order(outputs["priced-orders"]):
        lane, value = _seen_lane(record), decoded(record.value)
        lanes.pop(("last", *lane), None)
        if value is not None:
            result = ((value["order"], value["product"]), None)
            lanes["last", *lane] = [result]
            turns = lanes.setdefault(("turn", *lane), [])
            if (value["order"], None) not in turns[-1:]:
                turns.append((value["order"], None))
            # An order may lose its product, and with that show alone, more than once.
            if value["product"] is not None:
                lanes.setdefault(("any", *lane), []).append(result)
    for topic in ("order-echo", "product-echo"):
        _add_echo(lanes, topic, outputs[topic])
    return lanes


def punctuation(inputs: Log) -> Expected:
    """The ids of a key are collected; each punctuation shows and forgets them.

    Its time is left open, but not the ids collected since the last one.
    """
    lanes: Lanes = {}
    for record in _in_offset_order(inputs["punctuated-events"]):
        identity = decoded(record.value)["id"]
        lanes.setdefault(_lane("punctuated-ids", record.key, 3), []).append((identity, None))
        change = (identity, (True, record.timestamp))
        lanes.setdefault(_lane("punctuated-changes", record.key, 3), []).append(change)
    return Expected(lanes, {"punctuated-store": {}})


def punctuation_seen(outputs: Log) -> Lanes:
    """Read the results of `punctuation` from the outputs."""
    lanes: Lanes = {}
    for record in _in_offset_order(outputs["punctuated-ids"]):
        ids = [(each, None) for each in decoded(record.value)]
        lanes.setdefault(_seen_lane(record), []).extend(ids)
    before: dict[bytes | None, list[str]] = {}
    for record in _in_offset_order(outputs["punctuated-changes"]):
        collected = decoded(record.value) or []
        if collected:
            has_one_more = collected[:-1] == before.get(record.key, [])
            change = (collected[-1], (has_one_more, record.timestamp))
            lanes.setdefault(_seen_lane(record), []).append(change)
        before[record.key] = collected
    return lanes


def punctuation_traced(outputs: Log) -> set[str]:
    """Return the ids that were collected: each was the last of them once."""
    changes = _in_offset_order(outputs.get("punctuated-changes", {}))
    return {decoded(record.value)[-1] for record in changes if record.value is not None}


def read_back(inputs: Log) -> Expected:
    """Events are written to a topic, which is read back to count and sum them by key."""
    lanes: Lanes = {}
    totals = _totals_by_key(lanes, "looped-totals", 3, inputs["looped-events"])
    for record in _in_offset_order(inputs["looped-events"]):
        lane = _lane("looped-back", record.key, 3)
        lanes.setdefault(lane, []).append((decoded(record.value)["id"], record.timestamp))
    return Expected(lanes, {"looped-store": totals})


def read_back_seen(outputs: Log) -> Lanes:
    """Read the results of `read_back` from the outputs."""
    lanes: Lanes = {}
    for record in _in_offset_order(outputs["looped-back"]):
        value = decoded(record.value)
        lanes.setdefault(_seen_lane(record), []).append((value["id"], record.timestamp))
    _add_totals_seen(lanes, outputs["looped-totals"])
    return lanes


def bad_input(inputs: Log) -> Expected:
    """Good events are echoed and totalled; each bad one is a dead letter, counted by its reason."""
    lanes: Lanes = {}
    dropped: Counter[str] = Counter()
    good: dict[int, list[Logged]] = {}
    for record in _in_offset_order(inputs["bad-events"]):
        reason = _fault_of(record.value)
        if reason is None:
            good.setdefault(record.partition, []).append(record)
            continue
        dropped[reason] += 1
        identity = identity_of(record)
        lanes["bad-letters", identity] = [(identity, reason)]
    totals = _totals_by_key(lanes, "bad-totals", 3, good)
    for record in _in_offset_order(good):
        lane = _lane("bad-echo", record.key, 3)
        lanes.setdefault(lane, []).append((decoded(record.value)["id"], record.timestamp))
    return Expected(lanes, {"bad-store": totals}, dropped=dict(dropped))


def _fault_of(value: bytes | None) -> str | None:
    """Return the reason for which an event is dropped; None if it is good."""
    event = _event_in(value)
    if event is None:
        return "deserialization"
    reasons = {"depth": "processing", "topic": "production", "expand": "refused"}
    return next((reason for name, reason in reasons.items() if name in event), None)


def bad_input_seen(outputs: Log) -> Lanes:
    """Read the results of `bad_input` from the outputs."""
    lanes: Lanes = {}
    for record in _in_offset_order(outputs["bad-echo"]):
        value = decoded(record.value)
        lanes.setdefault(_seen_lane(record), []).append((value["id"], record.timestamp))
    _add_totals_seen(lanes, outputs["bad-totals"])
    for record in _in_offset_order(outputs["bad-letters"]):
        identity = identity_in_dead_letter(record)
        error = (_header(record, "exception") or "").rpartition(".")[2]
        reason = _REASONS.get(error, "deserialization")
        lanes.setdefault(("bad-letters", identity), []).append((identity, reason))
    return lanes


def bad_input_traced(outputs: Log) -> set[str]:
    """Return the ids of the events that outputs or dead letters show."""
    dead_letters = _in_offset_order(outputs["bad-letters"])
    return ids_in(outputs, "bad-echo") | {
        identity_in_dead_letter(record) for record in dead_letters
    }


def identity_of(record: Logged) -> str:
    """Return the id of an input record; its coordinates if it has none that can be read."""
    is_framed = record.topic == "framed-events"
    event = _event_in(_unframed(record.value) if is_framed else record.value) or {}
    return str(event.get("id") or f"{record.topic}/{record.partition}/{record.offset}")


def _event_in(value: bytes | None) -> dict[str, Any] | None:
    """Return the JSON object that a value is; None if it is none, or is too large to be read."""
    try:
        event = json.loads((value or b"").decode())  # stricter than `loads` of bytes
    except ValueError:
        return None
    return event if isinstance(event, dict) and len(value or b"") <= MAX_RECORD_BYTES else None


def identity_in_dead_letter(record: Logged) -> str:
    """Return the identity of the record that a dead letter is about.

    It is the id in the value, or else the coordinates in the headers.
    """
    origin = (_header(record, name) for name in ("topic", "partition", "offset"))
    event = _event_in(record.value) or {}
    return str(event.get("id") or "/".join(map(str, origin)))


def _header(record: Logged, name: str) -> str | None:
    value = dict(record.headers).get(f"__streams.errors.{name}")
    return None if value is None else value.decode()


def framed_aggregate(inputs: Log) -> Expected:
    """Each event, in Avro behind the number of its schema, is echoed and totalled; none drops."""
    unframed = {
        partition: [record._replace(value=_unframed(record.value)) for record in records]
        for partition, records in inputs["framed-events"].items()
    }
    lanes: Lanes = {}
    totals = _totals_by_key(lanes, "framed-totals", 3, unframed)
    for record in _in_offset_order(unframed):
        lane = _lane("framed-echo", record.key, 3)
        lanes.setdefault(lane, []).append((decoded(record.value)["id"], record.timestamp))
    return Expected(lanes, {"framed-store": totals}, dropped={})


def framed_aggregate_seen(outputs: Log) -> Lanes:
    """Read the results of `framed_aggregate` from the outputs; there may be no dead letter."""
    lanes: Lanes = {}
    for record in _in_offset_order(outputs["framed-echo"]):
        value = decoded(record.value)
        lanes.setdefault(_seen_lane(record), []).append((value["id"], record.timestamp))
    _add_totals_seen(lanes, outputs["framed-totals"])
    for record in _in_offset_order(outputs["framed-letters"]):
        lanes.setdefault(("framed-letters",), []).append((record.offset, None))
    return lanes


def _unframed(value: bytes | None) -> bytes:
    """Return an event as JSON: after a frame of five bytes, Avro has a text and a number."""
    assert value is not None
    size, position = _varint(value, 5)
    text = value[position : position + size].decode()
    amount, _ = _varint(value, position + size)
    return json.dumps({"id": text, "amount": amount}).encode()


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of Avro, and where it ends."""
    number = shift = 0
    while True:
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position


def ids_in(log: Log, *topics: str) -> set[str]:
    """Return the ids that the values of some topics have."""
    return {
        decoded(record.value)["id"]
        for topic in topics
        for record in _in_offset_order(log.get(topic, {}))
        if record.value is not None
    }


def _totals_by_key(
    lanes: Lanes, topic: str, partitions: int, inputs: dict[int, list[Logged]]
) -> dict[bytes, Any]:
    totals: dict[bytes, Any] = {}
    times: dict[bytes, int] = {}
    for record in _in_offset_order(inputs):
        assert record.key is not None
        value = decoded(record.value)
        total = totals.get(record.key, {"count": 0, "sum": 0})
        count, amount = total["count"] + 1, total["sum"] + value["amount"]
        totals[record.key] = {"count": count, "sum": amount, "id": value["id"]}
        times[record.key] = max(times.get(record.key, -1), record.timestamp)
        result = (value["id"], (count, amount, times[record.key]))
        lanes.setdefault(_lane(topic, record.key, partitions), []).append(result)
    return totals


def _add_totals_seen(lanes: Lanes, outputs: dict[int, list[Logged]]) -> None:
    for record in _in_offset_order(outputs):
        value = decoded(record.value)
        result = (value["id"], (value["count"], value["sum"], record.timestamp))
        lanes.setdefault(_seen_lane(record), []).append(result)


def _collect(
    lanes: Lanes,
    topic: str,
    state: dict[bytes, Any],
    key: bytes,
    pair: tuple[str | None, str | None],
) -> None:
    """Add one more result to those of its key, which are sorted; each change of them shows."""
    pairs = state.setdefault(key, [])
    pairs.append(f"{pair[0]} {pair[1]}")
    pairs.sort()
    lanes.setdefault(_lane(topic, key, 3), []).append((len(pairs), True))


def _add_collected_seen(lanes: Lanes, outputs: dict[int, list[Logged]]) -> None:
    before: dict[bytes | None, list[str]] = {}
    for record in _in_offset_order(outputs):
        pairs = decoded(record.value)
        has_one_more = len(pairs) == len({*before.get(record.key, []), *pairs})
        lanes.setdefault(_seen_lane(record), []).append((len(pairs), has_one_more))
        before[record.key] = pairs


def _add_echo(lanes: Lanes, topic: str, records: dict[int, list[Logged]]) -> None:
    """Add the expected echo of some records; the time identifies those without a value."""
    for record in _in_offset_order(records):
        identity = _id_of(record) or ("deleted", record.timestamp)
        lane = (topic, record.partition, record.key)
        lanes.setdefault(lane, []).append((identity, record.timestamp))


def _lane(topic: str, key: bytes | None, partitions: int) -> Lane:
    assert key is not None
    return topic, partition_for(key, partitions), key


def _seen_lane(record: Logged) -> Lane:
    return record.topic, record.partition, record.key


def _id_of(record: Logged | None) -> str | None:
    return None if record is None or record.value is None else str(decoded(record.value)["id"])


def _source_of(identity: str) -> str:
    """Return the source partition of a record, which its id begins with after the run."""
    return identity.split(".")[1]


def _in_offset_order(partitions: dict[int, list[Logged]]) -> Iterator[Logged]:
    for partition in sorted(partitions):
        yield from partitions[partition]
