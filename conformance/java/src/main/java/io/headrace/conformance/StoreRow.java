package io.headrace.conformance;

import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedRecord;

import java.util.Comparator;

/** One entry of a store; what the kind of store does not have is null. */
record StoreRow(Object key, Long start, Long end, Object value, Long timestamp, boolean versioned) {

    /** The order of a golden's store entries. */
    static final Comparator<StoreRow> BY_KEY_AND_WINDOW = Comparator
        .comparing((StoreRow row) -> Json.compact(Values.toJson(row.key)))
        .thenComparing(row -> row.start == null ? 0L : row.start)
        .thenComparing(row -> row.end == null ? 0L : row.end);

    static StoreRow of(Object key, Object stored) {
        if (stored instanceof VersionedRecord<?> version) {
            return new StoreRow(key, null, null, version.value(), version.timestamp(), true);
        }
        return new StoreRow(key, null, null, value(stored), timestamp(stored), false);
    }

    static StoreRow windowed(Windowed<?> key, Object stored) {
        return new StoreRow(key.key(), key.window().start(), key.window().end(), value(stored), timestamp(stored), false);
    }

    /** A row of a window store read by key: the store tells only where the window starts. */
    static StoreRow startingAt(Object key, long start, Object stored) {
        return new StoreRow(key, start, null, value(stored), timestamp(stored), false);
    }

    private static Object value(Object stored) {
        return stored instanceof ValueAndTimestamp<?> stamped ? stamped.value() : stored;
    }

    private static Long timestamp(Object stored) {
        return stored instanceof ValueAndTimestamp<?> stamped ? (Long) stamped.timestamp() : null;
    }

    ObjectNode toJson() {
        ObjectNode row = Json.MAPPER.createObjectNode();
        row.set("key", Values.toJson(key));
        if (start != null) {
            row.put("start", start);
        }
        if (end != null) {
            row.put("end", end);
        }
        row.set("value", Values.toJson(value));
        if (timestamp != null) {
            row.put("ts", timestamp);
        }
        if (versioned) {
            row.putNull("valid_to");
        }
        return row;
    }
}
