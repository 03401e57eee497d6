"""How the cost of a batch follows what it touches, not what the store holds.

::

    python benchmarks/state_growth.py [--entries 1000000 16000000] [--touched 10000] [--batches 5]
    python benchmarks/state_growth.py --spark [--entries 1000000] [--touched 10000]

``make bench`` runs the first one: the state's own work, on blobs in memory, in the processor's
time. With ``--spark`` the blobs are in Spark's state, and times are those of the clock. What a key
costs is the middle of the batches.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from headrace.runtime.btree.blobs import BlobStore, MemoryBlobs
from headrace.runtime.btree.pages import StateStats
from headrace.runtime.btree.stores import BTreeStores
from headrace.serdes import Serdes
from headrace.spark.blob_state import SparkBlobs
from headrace.state.specs import Stores

STORE = Stores.key_value("counts", Serdes.bytes(), Serdes.bytes())
_FILLED_AT_ONCE = 500_000
_DENSE = 500_000
_MOST_GROWTH = 2.0
_SETTLING = 8
"""After how many batches of random keys leaves have become as small as they will."""


@dataclass
class Batch:
    """What a batch cost."""

    seconds: float
    keys: int
    stats: StateStats

    def per_key(self) -> float:
        return self.seconds / self.keys * 1e6

    def written_per_changed(self) -> float:
        return self.stats.bytes_written / max(self.stats.bytes_changed, 1)


def key_of(number: int) -> bytes:
    return b"customer-%010d" % (number * 2_654_435_761 % 10_000_000_000)


def fill(blobs: BlobStore, entries: int) -> None:
    """Make a store of many entries."""
    keys = sorted(key_of(number) for number in range(entries))
    for start in range(0, entries, _FILLED_AT_ONCE):
        state = BTreeStores(blobs)
        counts = state.map(STORE)
        for key in keys[start : start + _FILLED_AT_ONCE]:
            counts.put(key, (b"12345678", 1_700_000_000_000))
        state.flush()


def batch(
    state: BTreeStores, keys: list[bytes], clock: Callable[[], float] = time.process_time
) -> Batch:
    """Update some keys as an aggregation does."""
    before = state.stats()
    gc.collect()
    started = clock()
    state.prefetch(keys)
    counts = state.map(STORE)
    get, put = counts.get, counts.put
    for key in keys:
        _, timestamp = get(key)
        put(key, (b"87654321", timestamp + 1))
    state.flush()
    seconds = clock() - started
    after = state.stats()
    return Batch(
        seconds,
        len(keys),
        StateStats(**{name: value - vars(before)[name] for name, value in vars(after).items()}),
    )


def show(name: str, measured: Batch) -> None:
    stats = measured.stats
    print(
        f"  {name:28} {measured.per_key():7.2f} us/key   bursts {stats.bursts_read:2} +"
        f" {stats.bursts_written}   blobs {stats.blobs_read:6} + {stats.blobs_written:6}"
        f"   written/changed {measured.written_per_changed():5.1f}"
        f"   faults {stats.faults}"
    )


def measure(entries: int, touched: int, batches: int) -> dict[str, float]:
    """Print what batches of random keys cost, and return it, once leaves have adapted."""
    chance = random.Random(7)
    started = time.process_time()
    blobs = MemoryBlobs()
    fill(blobs, entries)
    print(f"{entries:,} entries, filled in {time.process_time() - started:.0f} s")
    state = BTreeStores(blobs)
    state.map(STORE)
    for _ in range(_SETTLING):
        # Enough keys to touch every leaf now and then, few enough to touch little of each.
        batch(state, [key_of(number) for number in chance.sample(range(entries), entries // 40)])
        state.evict(0)
    sparse: list[Batch] = []
    for number in range(batches):
        state = BTreeStores(blobs)
        state.map(STORE)
        keys = [key_of(number) for number in chance.sample(range(entries), touched)]
        sparse.append(batch(state, keys))
        show(f"random keys, batch {number}", sparse[-1])
    dense: list[Batch] = []
    for number in range(3):
        state = BTreeStores(blobs)
        state.map(STORE)
        keys = [key_of(number) for number in chance.choices(range(entries), k=_DENSE)]
        dense.append(batch(state, keys))
        show(f"{_DENSE:,} records, batch {number}", dense[-1])
    show("the same, state kept", batch(state, keys))
    return {
        "entries": entries,
        "us_per_key": median(each.per_key() for each in sparse),
        "written_per_changed": median(each.written_per_changed() for each in sparse),
        "dense_us_per_key": median(each.per_key() for each in dense),
        "dense_written_per_changed": median(each.written_per_changed() for each in dense),
    }


def measure_in_spark(entries: int, touched: int, batches: int) -> None:
    """Print what batches of random keys cost if the blobs are in Spark's state."""
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import Row

    class Host(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.data = handle.getMapState("data", "key binary", "value binary")

        def handleInputRows(  # noqa: N802  # Spark's name
            self,
            key: Any,
            rows: Iterator[Row],
            timerValues: Any,  # noqa: N803  # Spark's name
        ) -> Iterator[Row]:
            for row in rows:
                blobs, chance = SparkBlobs(self.data, key), random.Random(row.id)
                if row.id == 0:
                    fill(blobs, entries)
                    continue
                state = BTreeStores(blobs)
                state.map(STORE)
                keys = [key_of(number) for number in chance.sample(range(entries), touched)]
                show(f"random keys, batch {row.id - 1}", batch(state, keys, time.perf_counter))
                sys.stdout.flush()
            yield from ()

        def close(self) -> None:
            pass

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as folder:
        source = str(Path(folder, "source"))
        for number in range(batches + 1):
            frame = spark.createDataFrame([(0, number)], "group long, id long").coalesce(1)
            frame.write.mode("append").parquet(source)
        stream = spark.readStream.schema("group long, id long").option("maxFilesPerTrigger", 1)
        hosted = stream.parquet(source).groupBy("group")
        print(f"{entries:,} entries in Spark's state")
        query = (
            hosted.transformWithState(Host(), "done long", "Append", "None")
            .writeStream.format("noop")
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, nargs="+", default=[1_000_000, 16_000_000])
    parser.add_argument("--touched", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--spark", action="store_true", help="with the blobs in Spark's state")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if options.spark:
        for entries in options.entries:
            measure_in_spark(entries, options.touched, options.batches)
        return
    stores = [measure(entries, options.touched, options.batches) for entries in options.entries]
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "state-growth.json").write_text(json.dumps(stores, indent=2))
    for entries, store in zip(options.entries[1:], stores[1:], strict=True):
        growth = store["us_per_key"] / stores[0]["us_per_key"]
        verdict = "met" if growth <= _MOST_GROWTH else "MISSED"
        print(
            f"{verdict:7} growth: a key of {entries:,} entries "
            f"costs {growth:.2f}x one of {options.entries[0]:,} (bar: at most {_MOST_GROWTH:g}x)"
        )


if __name__ == "__main__":
    main()
