"""The benchmark's own arithmetic: right outputs, measurements, reports."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from xml.etree import ElementTree as ET

import pytest

from benchmarks.apps import (
    filter_map,
    rekeyed_totals,
    running_totals,
    stream_table_join,
    windowed_totals,
)
from benchmarks.apps.orders import Topics
from benchmarks.dataset import LATE_MS, PARTITIONS, Dataset, city_of
from benchmarks.latency import Arrivals, Latency, percentile
from benchmarks.plot import svg_from_report
from benchmarks.process_tree import ProcessTree, own_cpu_seconds, proportional_set_size
from benchmarks.report import (
    Failure,
    Machine,
    Report,
    json_from_report,
    latency_table,
    throughput_table,
    verdicts,
)
from benchmarks.throughput import Measurement, Sample, measurement_from_samples
from benchmarks.workloads import WORKLOADS, Answer, Checker, Expected
from headrace import Serdes
from headrace.testing import TopologyTestDriver

DATASET = Dataset(records=2500, keys=150, start=1_700_000_040_000)
PROGRAMS = {
    "a": running_totals,
    "b": windowed_totals,
    "c": filter_map,
    "d": rekeyed_totals,
    "e": stream_table_join,
}


def test_a_dataset_is_always_the_same() -> None:
    assert [*DATASET.raw_orders()] == [*DATASET.raw_orders()]


def test_orders_are_json_with_the_fields_of_the_programs() -> None:
    order = next(DATASET.orders())
    raw = next(DATASET.raw_orders())

    value = json.loads(raw.value)

    assert raw.key.decode() == value["location_id"]
    assert (value["order_id"], value["final_amount"]) == (order.number, order.amount)
    assert 120 <= len(raw.value) <= 150


def test_some_orders_are_late_and_some_locations_unknown() -> None:
    latest, late = 0, 0
    for order in DATASET.orders():
        late += order.timestamp < latest - LATE_MS // 2
        latest = max(latest, order.timestamp)

    known = {raw.key for raw in DATASET.raw_locations()}

    assert late > 0
    assert len(known) == sum(city_of(location) is not None for location in range(DATASET.keys))
    assert len(known) < DATASET.keys


@pytest.mark.parametrize("letter", WORKLOADS)
def test_the_expected_answers_are_those_of_the_test_driver(letter: str) -> None:
    workload = WORKLOADS[letter]
    topology = PROGRAMS[letter].topology(Topics("orders", "locations", "output"))
    checker = Checker(workload.expected(DATASET))

    with TopologyTestDriver(topology, partitions=PARTITIONS) as driver:
        raw = Serdes.bytes()
        if letter == "e":
            locations = driver.create_input_topic("locations", key=raw, value=raw)
            for record in DATASET.raw_locations():
                locations.pipe_input(record.key, record.value, timestamp=record.timestamp)
        orders = driver.create_input_topic("orders", key=raw, value=raw)
        for record in DATASET.raw_orders():
            orders.pipe_input(record.key, record.value, timestamp=record.timestamp)
        output = driver.create_output_topic("output", key=raw, value=raw)
        for key, value in output.read_key_values_to_list():
            checker.add(key, workload.answer_from(value))

    assert checker.problems() == []


def test_late_orders_are_not_expected_in_their_windows() -> None:
    expected = WORKLOADS["b"].expected(DATASET)

    assert 0 < expected.most < DATASET.records


EXPECTED = Expected({b"a": Answer(2, 3.0), b"b": Answer(1, 1.0, "Oslo")}, least=2, most=3)
RIGHT = [(b"a", Answer(1, 1.0)), (b"b", Answer(1, 1.0, "Oslo")), (b"a", Answer(2, 3.0))]


def problems_of(outputs: list[tuple[bytes, Answer]]) -> list[str]:
    checker = Checker(EXPECTED)
    for key, answer in outputs:
        checker.add(key, answer)
    return checker.problems()


def test_a_checker_finds_nothing_wrong_with_right_outputs() -> None:
    assert problems_of(RIGHT) == []
    assert problems_of(RIGHT[1:]) == []


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        ([*RIGHT, RIGHT[-1]], "4 outputs instead of 2 to 3"),
        ([RIGHT[1], RIGHT[2], RIGHT[2]], "1 keys do not rise, such as b'a'"),
        (RIGHT[2:], "1 keys are missing, such as b'b'"),
        ([*RIGHT[1:], (b"c", Answer(1, 1.0))], "1 keys are not expected, such as b'c'"),
        (RIGHT[:2], "1 keys end with a wrong value, such as b'a'"),
        ([RIGHT[1], (b"a", Answer(2, 3.1))], "1 keys end with a wrong value, such as b'a'"),
        ([RIGHT[2], (b"b", Answer(1, 1.0, "Bergen"))], "1 keys end with a wrong value"),
    ],
)
def test_a_checker_names_the_problem(outputs: list[tuple[bytes, Answer]], problem: str) -> None:
    assert any(found.startswith(problem) for found in problems_of(outputs))


def samples(*rows: tuple[float, int, int, float]) -> list[Sample]:
    return [Sample(at, committed, outputs, cpu, 10 + cpu) for at, committed, outputs, cpu in rows]


def test_throughput_is_counted_from_the_first_to_the_last_commit() -> None:
    taken = samples(
        (1.0, 0, 0, 2.0),
        (3.0, 0, 50, 4.0),
        (4.0, 200, 90, 5.0),
        (6.0, 1000, 480, 9.0),
        (7.0, 1000, 500, 9.5),
        (9.0, 1000, 500, 9.9),
    )

    measured = measurement_from_samples(("headrace", "a"), 1000, taken, {"java": 3_000_000})

    assert measured.records_per_second == pytest.approx(800 / 3)
    assert measured.records_per_second_with_start == pytest.approx(1000 / 7)
    assert measured.cpu_us_per_record == pytest.approx(4.5 / 800 * 1e6)
    assert measured.broker_cpu_us_per_record == pytest.approx(4.5 / 800 * 1e6)
    assert measured.first_output_seconds == 3.0
    assert (measured.commits, measured.peak_memory_mb) == (2, 3.0)


def test_a_run_of_one_commit_is_counted_from_its_start() -> None:
    taken = samples((1.0, 0, 0, 1.0), (5.0, 1000, 500, 4.0))

    measured = measurement_from_samples(("headrace", "a"), 1000, taken, {})

    assert measured.records_per_second == 200.0


@pytest.mark.tier("test")  # starts a process
def test_a_process_tree_counts_children_that_live_and_that_ended() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    program = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {burn!r}])\n"
        f"child = subprocess.Popen([sys.executable, '-c', {burn + 'print(flush=True); input()'!r}],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    tree = ProcessTree(process.pid)
    try:
        assert process.stdout is not None
        process.stdout.readline()

        assert len([*tree.members()]) == 2
        assert tree.cpu_seconds() > 0.5
        assert sum(tree.memory().values()) >= proportional_set_size(process.pid) > 0
        assert own_cpu_seconds(process.pid) < tree.cpu_seconds()
    finally:
        tree.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_an_order_waits_for_the_first_total_that_holds_it() -> None:
    arrivals = Arrivals()
    for now in (1.0, 2.0, 3.0):
        arrivals.send(b"a", now)

    arrivals.receive(b"a", 2, 4.0)

    assert arrivals.waits == [(1.0, 3.0), (2.0, 2.0)]
    assert arrivals.missing() == 1


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]

    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile([7.0], 0.99) == 7.0


def measurement(system: str, rate: float, **changed: object) -> Measurement:
    values: dict[str, object] = dict.fromkeys(Measurement.__struct_fields__, 1.0)
    measured = {"memory_by_process_mb": {}, "problems": [], "records_per_second": rate}
    return Measurement(**{**values, "system": system, "workload": "a", **measured, **changed})  # type: ignore[arg-type]  # given by name


def report(*measurements: Measurement) -> Report:
    latencies = [Latency("headrace", 100, 700.0, 900.0, 950.0, 0.5, 0)]
    machine = Machine(2, 24.0, "6.1", 0.0)
    return Report("2024-01-01", 10, 5, machine, [*measurements], latencies, 300.0)


def test_a_report_compares_with_the_baseline_of_the_same_workload() -> None:
    ours = measurement("headrace", 300.0, first_output_seconds=13.0)
    found = report(measurement("kafka-streams", 100.0), ours)

    assert [line[:6] for line in verdicts(found)] == ["met   ", "MISSED", "met   ", "met   "]
    assert "3.00x" in [*throughput_table(found)][2]
    assert "700 ms" in [*latency_table(found)][1]


def test_a_report_is_right_only_if_every_run_and_output_is() -> None:
    wrong = report(measurement("headrace", 1.0, problems=["1 keys are missing"]))
    failed = report(measurement("headrace", 1.0))
    failed.failures.append(Failure("headrace", "a", "It ended."))

    assert report(measurement("headrace", 1.0)).is_right()
    assert not wrong.is_right()
    assert not failed.is_right()
    assert "1 keys are missing" in [*throughput_table(wrong)][1]


def test_a_report_is_json_and_a_picture_with_a_bar_per_value() -> None:
    found = report(measurement("kafka-streams", 100.0), measurement("headrace", 300.0))

    picture = ET.fromstring(svg_from_report(found))
    shapes = Counter(element.tag.rpartition("}")[2] for element in picture.iter())

    background, legend, throughput, cpu, latency = 1, 2, 2, 2, 2
    assert shapes["rect"] == background + legend + throughput + cpu + latency
    assert json.loads(json_from_report(found))["measurements"][1]["records_per_second"] == 300.0
