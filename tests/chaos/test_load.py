"""The load test: its criteria, and its feeder and reader on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Timer

import pytest

from benchmarks.topics import Topics
from chaos.ledger import PAGE, write_part
from chaos.load import checking
from chaos.load.checking import check, compare_changelog, compare_echo, compare_totals
from chaos.load.feeder import TOPIC, Fed, Feeder
from chaos.load.results import LoadEntry, RestartEntry, Sample, growth, quarters, read, summary
from chaos.load.running import ZERO_SECONDS, Plan, Restart, speed
from chaos.oracle import partition_for
from chaos.processes import Usage
from chaos.workloads.running_aggregate import WORKLOAD
from tests.kafka_broker import RunningBroker, start_broker
from tests.runtime.in_process import InProcessQuery

FED = {b"a": Fed(3, 60, 4), b"b": Fed(1, 5, 2)}
TOTALS = [
    (b"a", b'{"count": 1, "sum": 10, "id": "r0.p0.0"}'),
    (b"b", b'{"count": 1, "sum": 5, "id": "r0.p0.2"}'),
    (b"a", b'{"count": 2, "sum": 30, "id": "r0.p0.3"}'),
    (b"a", b'{"count": 3, "sum": 60, "id": "r0.p0.4"}'),
]
ECHO = [
    (b"a", b'{"id": "r0.p0.0", "amount": 10}'),
    (b"b", b'{"id": "r0.p0.2", "amount": 5}'),
    (b"a", b'{"id": "r0.p0.3", "amount": 20}'),
    (b"a", b'{"id": "r0.p0.4", "amount": 30}'),
]


def test_records_that_count_once_are_right() -> None:
    assert compare_totals(TOTALS, FED).is_clean
    assert compare_echo(ECHO, FED).is_clean
    assert compare_changelog(TOTALS, FED).is_clean


def test_a_total_that_is_missing_is_lost_wherever_it_is() -> None:
    for place in (0, 2, 3):
        found = compare_totals(TOTALS[:place] + TOTALS[place + 1 :], FED)
        assert found.lost == 1


def test_a_total_that_comes_twice_is_doubled() -> None:
    assert compare_totals([*TOTALS[:3], TOTALS[2], *TOTALS[3:]], FED).doubled == 1


def test_an_event_that_was_counted_twice_is_doubled() -> None:
    again = (b"a", b'{"count": 4, "sum": 90, "id": "r0.p0.4"}')

    assert compare_totals([*TOTALS, again], FED).doubled == 1


def test_a_wrong_sum_and_a_wrong_event_are_a_wrong_state() -> None:
    for value in (
        b'{"count": 3, "sum": 61, "id": "r0.p0.4"}',
        b'{"count": 3, "sum": 60, "id": "r0.p0.3"}',
    ):
        assert compare_totals([*TOTALS[:3], (b"a", value)], FED).wrong_state == 1


def test_echoes_are_found_lost_doubled_and_out_of_order() -> None:
    assert compare_echo(ECHO[1:], FED).lost == 1
    assert compare_echo([*ECHO, ECHO[-1]], FED).doubled == 1
    assert compare_echo([ECHO[2], ECHO[0], ECHO[1], ECHO[3]], FED).wrong_order == 1


def test_a_key_without_input_is_found() -> None:
    stranger = (b"c", b'{"count": 1, "sum": 1, "id": "r0.p0.9"}')

    assert compare_totals([*TOTALS, stranger], FED).doubled == 1
    assert compare_changelog([*TOTALS, stranger], FED).wrong_changelog == 1


def test_a_changelog_that_ends_early_is_found() -> None:
    assert compare_changelog(TOTALS[:3], FED).wrong_changelog == 1


def test_speed_leaves_out_the_warm_up_and_counts_from_commit_to_commit() -> None:
    progress = [(0.0, 0), (20.0, 50), (25.0, 400), (30.0, 700), (35.0, 1000)]

    assert speed(progress) == 60.0
    with pytest.raises(ValueError, match="Give a larger `--backlog`"):
        speed(progress[:2])


def test_restarts_alternate_and_leave_the_last_half_its_time() -> None:
    plan = Plan(minutes=20, every=180, backlog=1, share=0.6, seed=0)

    times, kinds = zip(*plan.restarts(), strict=True)

    assert times == (180, 360, 540, 720, 900, 1080)
    assert kinds[:3] == ("clean stop", "kill -9", "clean stop")


def test_the_lag_is_zero_only_after_the_next_start_has_committed() -> None:
    restart = Restart("clean stop", second=180, driver=1, starts=1)

    assert not restart.is_over(starts=1, committed=100, lag_seconds=0.5)
    assert not restart.is_over(starts=2, committed=110, lag_seconds=0.5)
    assert not restart.is_over(starts=2, committed=110, lag_seconds=0.5)
    assert not restart.is_over(starts=2, committed=120, lag_seconds=ZERO_SECONDS + 0.1)
    assert restart.is_over(starts=2, committed=130, lag_seconds=ZERO_SECONDS)


def _samples(*megabytes: float, start: int = 1) -> Iterator[Sample]:
    for number, each in enumerate(megabytes):
        yield Sample(number * 100 / len(megabytes), start, Usage(int(each * 1e6), 500))


def test_memory_is_the_median_of_each_quarter() -> None:
    samples = list(_samples(900, 1000, 1100, 1000, 9999, 1000, 1200, 1200))

    assert [megabytes for megabytes, _ in quarters(samples, 100)] == [950, 1050, 5500, 1200]


def test_growth_over_the_run_and_within_one_start_is_reported() -> None:
    steady = [Sample(second, second // 25, Usage(10**9, 500)) for second in range(100)]
    between = [each._replace(usage=Usage(10**9 + each.start * 10**8, 500)) for each in steady]
    within = [each._replace(usage=Usage(10**9, 500 + 8 * int(each.second % 25))) for each in steady]

    assert list(growth(steady, 100)) == []
    assert [text.partition(" of ")[0] for text in growth(between, 100)] == [
        "In the last quarter there were 1,300 MB, after 1,100."
    ]
    assert len(list(growth(within, 100))) == 4
    assert all("files" in text for text in growth(within, 100))


def _entry(**fields: object) -> LoadEntry:
    made = {
        "commit": "abc",
        "seed": 1,
        "minutes": 20,
        "maximum": 20_000,
        "rate": 12_000,
        "records": 16_000_000,
        "lag_seconds": 1.4,
        "restarts": [RestartEntry("kill -9", 360, 41.5)],
        "megabytes": [1500, 1510, 1490, 1500],
        "files": [700, 700, 701, 700],
        "feeder_cpu": 0.1,
        "verdict": {"lost": 0},
    }
    return LoadEntry(**{**made, **fields})  # type: ignore[arg-type]


def test_a_run_is_clean_if_nothing_was_found_and_nothing_went_wrong() -> None:
    assert _entry().is_clean
    assert not _entry(verdict={"lost": 1}).is_clean
    assert not _entry(problems=["The lag was never zero."]).is_clean
    assert "42 s (kill -9)" in summary([_entry()])


def test_the_page_shows_the_runs() -> None:
    assert summary(list(read())) in PAGE.read_text()


def test_a_part_of_a_page_is_replaced_up_to_the_next_section(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nhere.\n\nold\n\n## Next\n\nstays\n")

    for _ in range(2):
        write_part("here.\n", "new\n", page)

    assert page.read_text() == "# Title\n\nhere.\n\nnew\n\n## Next\n\nstays\n"


@pytest.fixture(scope="module")
def kafka() -> Iterator[RunningBroker]:
    """A broker of its own: another test has topics of these names, with fewer partitions."""
    with start_broker() as broker:
        Topics(broker.address).create(TOPIC, checking.ECHO, checking.TOTALS)
        yield broker


@pytest.mark.nightly("faults")
def test_a_right_run_passes_and_a_total_written_twice_is_found(
    kafka: RunningBroker, tmp_path: Path
) -> None:
    feeder, over = Feeder(kafka.address, seed=7), Event()
    feeder.send(2_000)
    feeder.rate = 20_000
    Timer(0.2, over.set).start()
    feeder.keep_pace(over)
    feeder.flush()
    query = InProcessQuery(
        WORKLOAD.topology(),
        tmp_path,
        application_id="load",
        bootstrap_servers=kafka.address,
        **WORKLOAD.settings,
    )
    query.run()

    fed = feeder.fed()
    before = check(kafka.address, "load", fed)
    key, last = next(iter(fed.items()))
    value = f'{{"count": {last.count}, "sum": {last.sum}, "id": "r7.p0.{last.last}"}}'.encode()
    partition = partition_for(key.encode(), 4)
    with query.log.transaction("again") as transaction:
        transaction.append([(checking.TOTALS, partition, 1, key.encode(), value, None)])
    after = check(kafka.address, "load", fed)
    query.log.close()

    assert feeder.sent == sum(each.count for each in fed.values()) > 2_000
    assert before.examples == []
    assert before.is_clean
    assert {kind: count for kind, count in after.counts().items() if count} == {"doubled": 1}
