"""Measure the cost of a batch in stores of different sizes: it should depend on the batch only.

::

    python benchmarks/state_growth.py [--entries 1000000 16000000] [--updated 10000] [--batches 5]
    python benchmarks/state_growth.py --spark [--entries 1000000] [--updated 10000]

``make bench`` runs the first one: the B+ tree over blobs in memory, in processor time. With
``--spark`` the blobs are in Spark's state, in wall-clock time. The cost of a key is the median of
the batches.
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
from headrace.runtime.btree.pages import BTreeStats
from headrace.runtime.btree.stores import BTreeStores
from headrace.serdes import Serdes
from headrace.spark.blob_state import SparkBlobs
from headrace.state.specs import Stores

STORE = Stores.key_value("counts", Serdes.bytes(), Serdes.bytes())
_FILL_BATCH = 500_000
_DENSE = 500_000
_MAX_GROWTH = 2.0
_WARM_UP_BATCHES = 8
"""After this many batches of random keys, leaf pages have their final size."""


@dataclass
class Batch:
    """The cost of a batch."""

    seconds: float
    keys: int
    stats: BTreeStats

    def per_key(self) -> float:
        return self.seconds / self.keys * 1e6

    def written_per_changed(self) -> float:
        return self.stats.bytes_written / max(self.stats.bytes_changed, 1)


def key_of(number: int) -> bytes:
    return b"customer-%010d" % (number * 2_654_435_761 % 10_000_000_000)


def fill(blobs: BlobStore, entries: int) -> None:
    """Write a store of ``entries`` entries."""
    keys = sorted(key_of(number) for number in range(entries))
    for start in range(0, entries, _FILL_BATCH):
        backend = BTreeStores(blobs)
        counts = backend.map(STORE)
        for key in keys[start : start + _FILL_BATCH]:
            counts.put(key, (b"12345678", 1_700_000_000_000))
        backend.flush()


def batch(
    backend: BTreeStores, keys: list[bytes], clock: Callable[[], float] = time.process_time
) -> Batch:
    """Update keys as an aggregation does."""
    before = backend.stats()
    gc.collect()
    started = clock()
    backend.prefetch(keys)
    counts = backend.map(STORE)
    get, put = counts.get, counts.put
    for key in keys:
        _, timestamp = get(key)
        put(key, (b"87654321", timestamp + 1))
    backend.flush()
    seconds = clock() - started
    after = backend.stats()
    return Batch(
        seconds,
        len(keys),
        BTreeStats(**{name: value - vars(before)[name] for name, value in vars(after).items()}),
    )


def show(name: str, measured: Batch) -> None:
    stats = measured.stats
    print(
        f"  {name:28} {measured.per_key():7.2f} us/key   round trips {stats.read_round_trips:2} +"
        f" {stats.write_round_trips}   blobs {stats.blobs_read:6} + {stats.blobs_written:6}"
        f"   written/changed {measured.written_per_changed():5.1f}"
        f"   faults {stats.faults}"
    )


def measure(entries: int, updated: int, batches: int) -> dict[str, float]:
    """Print and return the cost of batches of random keys, after the warm-up batches."""
    chance = random.Random(7)
    started = time.process_time()
    blobs = MemoryBlobs()
    fill(blobs, entries)
    print(f"{entries:,} entries, filled in {time.process_time() - started:.0f} s")
    backend = BTreeStores(blobs)
    backend.map(STORE)
    for _ in range(_WARM_UP_BATCHES):
        # Each batch updates about one in 40 entries, so leaf pages are sparse and split.
        batch(backend, [key_of(number) for number in chance.sample(range(entries), entries // 40)])
        backend.evict(0)
    sparse: list[Batch] = []
    for number in range(batches):
        backend = BTreeStores(blobs)
        backend.map(STORE)
        keys = [key_of(number) for number in chance.sample(range(entries), updated)]
        sparse.append(batch(backend, keys))
        show(f"random keys, batch {number}", sparse[-1])
    dense: list[Batch] = []
    for number in range(3):
        backend = BTreeStores(blobs)
        backend.map(STORE)
        keys = [key_of(number) for number in chance.choices(range(entries), k=_DENSE)]
        dense.append(batch(backend, keys))
        show(f"{_DENSE:,} records, batch {number}", dense[-1])
    show("the same, pages loaded", batch(backend, keys))
    return {
        "entries": entries,
        "us_per_key": median(measured.per_key() for measured in sparse),
        "written_per_changed": median(measured.written_per_changed() for measured in sparse),
        "dense_us_per_key": median(measured.per_key() for measured in dense),
        "dense_written_per_changed": median(measured.written_per_changed() for measured in dense),
    }


def measure_in_spark(entries: int, updated: int, batches: int) -> None:
    """Print the cost of batches of random keys, with the blobs in Spark's state."""
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
                backend = BTreeStores(blobs)
                backend.map(STORE)
                keys = [key_of(number) for number in chance.sample(range(entries), updated)]
                show(f"random keys, batch {row.id - 1}", batch(backend, keys, time.perf_counter))
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
            frame = spark.createDataFrame([(0, number)], "grouping_key long, id long").coalesce(1)
            frame.write.mode("append").parquet(source)
        stream = spark.readStream.schema("grouping_key long, id long").option(
            "maxFilesPerTrigger", 1
        )
        hosted = stream.parquet(source).groupBy("grouping_key")
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
    parser.add_argument("--updated", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--spark", action="store_true", help="with the blobs in Spark's state")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if options.spark:
        for entries in options.entries:
            measure_in_spark(entries, options.updated, options.batches)
        return
    stores = [measure(entries, options.updated, options.batches) for entries in options.entries]
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "state-growth.json").write_text(json.dumps(stores, indent=2))
    for entries, store in zip(options.entries[1:], stores[1:], strict=True):
        growth = store["us_per_key"] / stores[0]["us_per_key"]
        verdict = "met" if growth <= _MAX_GROWTH else "MISSED"
        print(
            f"{verdict:7} growth: a key of {entries:,} entries "
            f"costs {growth:.2f}x one of {options.entries[0]:,} (bar: at most {_MAX_GROWTH:g}x)"
        )


if __name__ == "__main__":
    main()
