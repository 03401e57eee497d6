"""Clicks on pages, re-keyed by their user, with the visits of that user.

Beside that each click is echoed by its user, behind the repartition, and so is each visit; the
results of each user are collected.

Now the clicks of some time come first, now the visits. A task waits for the other topic, so clicks
wait behind the repartition, and the group may not count them as read. Their source offsets are
unknown, so the group's offsets do not move while clicks wait. When an act is over, all are
processed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from chaos import oracle
from chaos.contract import Sent, Workload
from chaos.workloads.generating import FIRST_MS, PARTITIONS, SETTINGS, chance, identity, sent
from chaos.workloads.outer_join import pair, write_joined
from headrace import JoinWindows, StreamsBuilder, Topology

_RUN, _CLICKS = 80, 60
"""How many records are of one time, and how many of them are clicks."""

_ACT = 5 * _RUN
_BETWEEN_ACTS_MS = 600_000
_CLICKS_OF_USER = 3
_AWAY = 2
"""How many users of a run click and do not visit; as many do the opposite."""

_PAGES = 40

BUFFERED_RECORDS = 100
"""The bound of an input of a task: the planner stops reading what feeds a repartition there."""


def _topology() -> Topology:
    builder = StreamsBuilder()
    clicks = (
        builder.stream("clicks", key=str, value=dict[str, Any])
        .select_key(lambda _page, click: str(click["user"]), key=str)
        .repartition(name="clicks-by-user")
    )
    visits = builder.stream("visits", key=str, value=dict[str, Any])
    windows = JoinWindows(oracle.JOIN_MS, grace=oracle.JOIN_GRACE_MS)
    joined = clicks.join(visits, pair, windows, value=dict[str, Any])
    write_joined(
        "visited", joined, {"click-echo": clicks, "visit-echo": visits}, results="visited-clicks"
    )
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        run, index = divmod(number, _RUN)
        if run % 2:
            index = (index + _CLICKS) % _RUN
        first = FIRST_MS + number // _ACT * _BETWEEN_ACTS_MS + number % _ACT // _RUN * _RUN
        if index < _CLICKS:
            user = f"user-{seed}-{run}-{index // _CLICKS_OF_USER}"
            page = f"page-{chance(seed, number).randrange(_PAGES)}"
            fields = {"id": identity(seed, page, number), "user": user}
            yield sent("clicks", page, first + index, fields)
        else:
            visit = index - _CLICKS
            user = f"user-{seed}-{run}-{_AWAY + visit}"
            fields = {"id": identity(seed, user, number)}
            yield sent("visits", user, first + _CLICKS_OF_USER * visit, fields)


def lonely_clicks(seed: int, sent_records: int, numbers: Iterable[int]) -> Iterator[Sent]:
    """Yield clicks of users who visit nothing, of the time of the last record that was sent."""
    last = max(0, sent_records - 1)
    timestamp = FIRST_MS + last // _ACT * _BETWEEN_ACTS_MS + last % _ACT // _RUN * _RUN
    for number in numbers:
        page = f"page-{chance(seed, number).randrange(_PAGES)}"
        fields = {"id": identity(seed, page, number), "user": f"lonely-{seed}-{number}"}
        yield sent("clicks", page, timestamp, fields)


WORKLOAD = Workload(
    name="rekeyed_join",
    topics={"clicks": PARTITIONS, "visits": PARTITIONS},
    outputs={
        "click-echo": PARTITIONS,
        "visit-echo": PARTITIONS,
        "visited-collected": PARTITIONS,
        "visited-clicks": PARTITIONS,
    },
    stores={"visited-store": "key_value"},
    settings={
        **SETTINGS,
        "max_task_idle": "1s",
        "buffered_records_per_partition": BUFFERED_RECORDS,
    },
    act=_ACT,
    topology=_topology,
    records=_records,
    expected=oracle.rekeyed_join,
    observed=oracle.rekeyed_join_seen,
    traced=lambda outputs: oracle.ids_in(outputs, "click-echo", "visit-echo"),
    shown=("visited-store", "visited-collected"),
)
