"""One name for each concept: retired names do not come back. See docs/architecture.md, Words."""

from __future__ import annotations

import io
import re
import tokenize

from tests.meta.repository import name_of, python_files

RETIRED = {
    "_LASTING": "_PERMANENT",
    "_may_try_again": "_should_retry",
    "_spark_told": "_translating_errors",
    "Appended": "RawRecord",
    "BatchNote": "BatchResult",
    "BlobState": "BlobStore",
    "carry_out_reset": "execute_reset",
    "carriers": "relay_keys",
    "check_seal": "check_sentinel",
    "check_unwritten": "check_markers_intact",
    "Connector": "ClientFactory",
    "end_at_what_is_there": "stop_at_current_ends",
    "end_transactions": "fence_producers",
    "epochs_id": "marker_topic_id",
    "epochs_name": "markers_name",
    "Expiring": "TtlMap",
    "fatal_told": "unwrap_fatal_error",
    "for_all": "whole_application",
    "globals_until": "global_load_ends",
    "HEAD_LEAF": "ROOT_PAGE",
    "held_from": "first_buffered_offsets",
    "HeldEntry": "CacheEntry",
    "HeldWrites": "RecordCache",
    "is_spread": "is_unpacked",
    "is_woken": "runs_every_batch",
    "last_words": "jvm_exit_reason",
    "LeafLimits": "PageLimits",
    "LeafMap": "BTreeMap",
    "LeafTree": "PageTree",
    "LeafWriter": "PageWriter",
    "lease": "lock",
    "Lease": "DirectoryLock",
    "left_at": "written_at",
    "lows": "first_keys",
    "marker_in": "parse_marker",
    "NarrowBatches": "BatchSizeLimit",
    "note_taken": "skip_written",
    "Notes": "RunFiles",
    "OrderedState": "BTreeStores",
    "OutputSpool": "OutputBuffer",
    "Outputs": "TaskOutput",
    "Parcel": "Payload",
    "parcel": "payload",
    "parcels": "payloads",
    "PartLayout": "SubtopologyLayout",
    "PartitionNote": "PartitionResult",
    "parts_held_up": "subtopologies_with_buffers",
    "parts_upstream": "upstream_ids",
    "PASSING": "RETRIABLE",
    "pieces_of": "split_count",
    "plan_of": "plan_topology",
    "PlannedPart": "PlannedSubtopology",
    "PlannerNote": "PlannerStatus",
    "Refusals": "RefusedRecords",
    "seal_markers": "commit_sentinel",
    "some_at_a_time": "chunks",
    "SparkFiles": "SparkBatchLog",
    "SparkPlan": "ExecutionPlan",
    "StoreData": "StoreBackend",
    "SubTopology": "Subtopology",
    "TaskPlace": "TaskPlacement",
    "undelivered": "delivery_error",
    "untaken": "delivery_timeout_error",
    "Wake": "TaskCall",
    "without_those_ahead": "limit_inputs_ahead",
}
"""Names that no Python file of the project uses any more, and the ones that took their place."""


def test_no_file_uses_a_retired_name() -> None:
    retired = re.compile(rf"\b({'|'.join(RETIRED)})\b")
    uses = [
        f"{name_of(path)}:{token.start[0]} {token.string} (use {RETIRED[token.string]})"
        for path in python_files()
        if retired.search(text := path.read_text())
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NAME and token.string in RETIRED
    ]

    assert uses == []
