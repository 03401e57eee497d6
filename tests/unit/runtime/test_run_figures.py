from __future__ import annotations

import msgspec

from headrace.engine.samples import NODE_SECONDS, SourceSamples
from headrace.metrics import Histogram
from headrace.runtime.exchange.packing import StoreReport, TaskReport
from headrace.runtime.planning.snapshot_stats import MOST_FIGURE_BYTES, MOST_SERIES, run_figures
from headrace.runtime.run_files import Totals


def samples(*seconds: float) -> SourceSamples:
    found = SourceSamples()
    found.seconds.add(seconds, NODE_SECONDS)
    return found


def test_a_figure_has_the_sum_of_all_tasks() -> None:
    totals = Totals()
    for partition, rows in ((0, 3), (1, 4), (0, 5)):
        report = TaskReport(
            f"0_{partition}",
            bytes_consumed={"in": {partition: 10}},
            bytes_produced={"out": 7},
            samples={"source": samples(1.0)},
            events={"hold": {"suppression-emit": 2}},
            buffers={"hold": (rows, 100 * rows)},
            entries={"store": rows},
            stores={"changelog": StoreReport(6)},
        )
        totals.add([report])
    totals.add_transactions({"commit": 2}, {"out": Histogram([1], 0.5)})
    totals.add_transactions({"commit": 1, "abort": 1}, {"out": Histogram([1], 0.25)})

    found = run_figures(
        totals, {"run": Histogram([2], 9.0)}, {"BrokerError": 1}, {"changelog": "s"}
    )

    seconds = found.pop("node_seconds")
    assert seconds[0][:2] == ["source", "0"]
    assert (sum(seconds[0][2][0]), seconds[0][2][1]) == (3, 3.0)
    assert found.pop("lateness") == [["source", "0", [[], 0.0]]]
    assert found == {
        "bytes_consumed": [["in", "0", 20], ["in", "1", 10]],
        "bytes_produced": [["out", 21]],
        "suppression_emits": [["hold", 6]],
        "buffer_rows": [["hold", 9]],
        "buffer_bytes": [["hold", 900]],
        "transactions": [["abort", 1], ["commit", 3]],
        "latency": [["out", [[2], 0.75]]],
        "phases": [["run", [[2], 9.0]]],
        "restarts": [["BrokerError", 1]],
        "entries": [["store", "0", 5], ["store", "1", 4]],
        "changes": [["s", 18]],
    }


def test_partitions_that_are_too_many_are_summed_by_topic() -> None:
    totals = Totals(
        bytes_consumed={"a": dict.fromkeys(range(40), 1), "b": dict.fromkeys(range(40), 2)}
    )

    found = run_figures(totals, {}, {}, {})["bytes_consumed"]

    assert found == [["a", "other", 40], ["b", "other", 80]]


def test_series_that_are_too_many_are_one_sum() -> None:
    totals = Totals(bytes_produced={f"topic{each:03}": each for each in range(200)})

    found = run_figures(totals, {}, {}, {})["bytes_produced"]

    assert len(found) == MOST_SERIES
    assert found[0] == ["other", sum(range(MOST_SERIES - 1, 200))]
    assert found[-1] == ["topic048", 48]


def test_all_figures_fit_into_a_record() -> None:
    nodes = {f"a-node-with-a-long-name-{each:03}": samples(*[1e-6] * 9_999) for each in range(300)}
    totals = Totals(samples={"0": nodes}, bytes_produced=dict.fromkeys(nodes, 10**12))

    found = run_figures(totals, {}, {}, {})

    assert len(msgspec.json.encode(found)) <= MOST_FIGURE_BYTES
    assert sum(sum(histogram[0]) for *_, histogram in found["node_seconds"]) == 300 * 9_999


def test_figures_stay_as_they_are_when_the_run_continues() -> None:
    phases = {"run": Histogram([1], 1.0)}
    before = run_figures(Totals(), phases, {}, {})

    phases["run"].add([1.0], ())

    assert before == {"phases": [["run", [[1], 1.0]]]}
