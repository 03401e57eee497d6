package io.headrace.conformance;

import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.function.BiFunction;

/** Reads stores of every kind: by a scenario's query, or completely. */
@SuppressWarnings("unchecked")
final class StoreReader {

    private StoreReader() { }

    static String type(StateStore store) {
        if (store instanceof VersionedKeyValueStore<?, ?>) {
            return "versioned";
        }
        if (store instanceof TimestampedKeyValueStore<?, ?>) {
            return "timestamped_key_value";
        }
        if (store instanceof TimestampedWindowStore<?, ?>) {
            return "timestamped_window";
        }
        if (store instanceof ReadOnlyWindowStore<?, ?>) {
            return "window";
        }
        return store instanceof ReadOnlySessionStore<?, ?> ? "session" : "key_value";
    }

    /** All entries, sorted; of a versioned store the latest of each given key. */
    static List<StoreRow> entries(StateStore store, Collection<?> keys) {
        List<StoreRow> rows = new ArrayList<>();
        if (store instanceof VersionedKeyValueStore<?, ?>) {
            for (Object key : keys) {
                rows.addAll(read(store, "get", key, null, null));
            }
        } else if (store instanceof ReadOnlySessionStore<?, ?>) {
            rows.addAll(windowed(((ReadOnlySessionStore<Object, Object>) store).fetch(null, null)));
        } else {
            rows.addAll(read(store, "all", null, null, null));
        }
        rows.sort(StoreRow.BY_KEY_AND_WINDOW);
        return rows;
    }

    /** The rows of one query, in the store's order. */
    static List<StoreRow> read(StateStore store, String method, Object key, Object from, Object to) {
        if (store instanceof VersionedKeyValueStore<?, ?>) {
            return versioned((VersionedKeyValueStore<Object, Object>) store, method, key, from);
        }
        if (store instanceof ReadOnlyKeyValueStore<?, ?>) {
            return keyValue((ReadOnlyKeyValueStore<Object, Object>) store, method, key, from, to);
        }
        if (store instanceof ReadOnlyWindowStore<?, ?>) {
            return window((ReadOnlyWindowStore<Object, Object>) store, method, key, from, to);
        }
        return session((ReadOnlySessionStore<Object, Object>) store, method, key, from, to);
    }

    private static List<StoreRow> versioned(VersionedKeyValueStore<Object, Object> store, String method, Object key, Object from) {
        Object found = method.equals("as_of") ? store.get(key, Values.asLong(from)) : store.get(key);
        return found == null ? List.of() : List.of(StoreRow.of(key, found));
    }

    private static List<StoreRow> keyValue(
        ReadOnlyKeyValueStore<Object, Object> store, String method, Object key, Object from, Object to
    ) {
        switch (method) {
            case "get":
                Object found = store.get(key);
                return found == null ? List.of() : List.of(StoreRow.of(key, found));
            case "all": return plain(store.all());
            case "reverse_all": return plain(store.reverseAll());
            case "range": return plain(store.range(from, to));
            case "reverse_range": return plain(store.reverseRange(from, to));
            case "prefix": return plain(store.prefixScan((String) key, new StringSerializer()));
            default: throw new ScenarioError("Not a query of a key-value store: " + method);
        }
    }

    private static List<StoreRow> window(
        ReadOnlyWindowStore<Object, Object> store, String method, Object key, Object from, Object to
    ) {
        switch (method) {
            case "get":
                Object found = store.fetch(key, Values.asLong(from));
                return found == null ? List.of() : List.of(StoreRow.startingAt(key, Values.asLong(from), found));
            case "fetch": return starts(key, store.fetch(key, instant(from), instant(to)));
            case "backward_fetch": return starts(key, store.backwardFetch(key, instant(from), instant(to)));
            case "fetch_all": return windowed(store.fetchAll(instant(from), instant(to)));
            case "backward_fetch_all": return windowed(store.backwardFetchAll(instant(from), instant(to)));
            case "all": return windowed(store.all());
            case "backward_all": return windowed(store.backwardAll());
            default: throw new ScenarioError("Not a query of a window store: " + method);
        }
    }

    private static List<StoreRow> session(
        ReadOnlySessionStore<Object, Object> store, String method, Object key, Object from, Object to
    ) {
        switch (method) {
            case "get":
                Object found = store.fetchSession(key, Values.asLong(from), Values.asLong(to));
                return found == null
                    ? List.of()
                    : List.of(new StoreRow(key, Values.asLong(from), Values.asLong(to), found, null, false));
            case "fetch": return windowed(store.fetch(key));
            case "backward_fetch": return windowed(store.backwardFetch(key));
            case "find_sessions": return windowed(store.findSessions(key, Values.asLong(from), Values.asLong(to)));
            case "backward_find_sessions":
                return windowed(store.backwardFindSessions(key, Values.asLong(from), Values.asLong(to)));
            case "all": return windowed(store.fetch(null, null));
            default: throw new ScenarioError("Not a query of a session store: " + method);
        }
    }

    private static Instant instant(Object time) {
        return Instant.ofEpochMilli(Values.asLong(time));
    }

    private static List<StoreRow> plain(KeyValueIterator<Object, Object> entries) {
        return rows(entries, StoreRow::of);
    }

    private static List<StoreRow> windowed(KeyValueIterator<Windowed<Object>, Object> entries) {
        return rows(entries, StoreRow::windowed);
    }

    private static List<StoreRow> starts(Object key, WindowStoreIterator<Object> entries) {
        return rows(entries, (start, stored) -> StoreRow.startingAt(key, start, stored));
    }

    private static <K> List<StoreRow> rows(KeyValueIterator<K, Object> entries, BiFunction<K, Object, StoreRow> row) {
        List<StoreRow> rows = new ArrayList<>();
        try (entries) {
            while (entries.hasNext()) {
                KeyValue<K, Object> entry = entries.next();
                rows.add(row.apply(entry.key, entry.value));
            }
        }
        return rows;
    }
}
