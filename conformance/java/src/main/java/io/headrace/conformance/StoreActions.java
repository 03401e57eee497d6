package io.headrace.conformance;

import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;

/** The actions get, as_of, put, put_if_absent and delete, on a store of any kind. */
@SuppressWarnings("unchecked")
final class StoreActions {

    private StoreActions() { }

    /** What the action returns: a value without its timestamp, or the code of a versioned put. */
    static Object run(Params action, StateStore store, Script script) {
        Object key = script.evaluate(action.mentions("key") ? action.pipeline("key") : Pipeline.parse("key"));
        if (store instanceof VersionedKeyValueStore<?, ?>) {
            return plain(versioned(action, (VersionedKeyValueStore<Object, Object>) store, key, script));
        }
        if (store instanceof WindowStore<?, ?>) {
            return plain(window(action, (WindowStore<Object, Object>) store, key, script));
        }
        if (store instanceof SessionStore<?, ?>) {
            return session(action, (SessionStore<Object, Object>) store, key, script);
        }
        return plain(keyValue(action, (KeyValueStore<Object, Object>) store, key, script));
    }

    private static Object plain(Object stored) {
        if (stored instanceof ValueAndTimestamp<?> stamped) {
            return stamped.value();
        }
        return stored instanceof VersionedRecord<?> version ? version.value() : stored;
    }

    private static Object keyValue(Params action, KeyValueStore<Object, Object> store, Object key, Script script) {
        switch (action.text("do")) {
            case "get":
                return store.get(key);
            case "put":
                store.put(key, newValue(action, isTimestamped(store), script));
                return null;
            case "put_if_absent":
                return store.putIfAbsent(key, newValue(action, isTimestamped(store), script));
            case "delete":
                return store.delete(key);
            default:
                throw notFor(action, "key-value");
        }
    }

    private static Object versioned(Params action, VersionedKeyValueStore<Object, Object> store, Object key, Script script) {
        switch (action.text("do")) {
            case "get":
                return store.get(key);
            case "as_of":
                return store.get(key, time(action, "ts", script));
            case "put":
                return store.put(key, script.evaluate(action.pipeline("value")), time(action, "ts", script));
            case "delete":
                return store.delete(key, time(action, "ts", script));
            default:
                throw notFor(action, "versioned");
        }
    }

    private static Object window(Params action, WindowStore<Object, Object> store, Object key, Script script) {
        long start = time(action, "start", script);
        switch (action.text("do")) {
            case "get":
                return store.fetch(key, start);
            case "put":
                store.put(key, newValue(action, isTimestamped(store), script), start);
                return null;
            case "delete":
                store.put(key, null, start);
                return null;
            default:
                throw notFor(action, "window");
        }
    }

    private static Object session(Params action, SessionStore<Object, Object> store, Object key, Script script) {
        long start = time(action, "start", script);
        long end = time(action, "end", script);
        switch (action.text("do")) {
            case "get":
                return store.fetchSession(key, start, end);
            case "put":
                store.put(new Windowed<>(key, new SessionWindow(start, end)), script.evaluate(action.pipeline("value")));
                return null;
            case "delete":
                store.remove(new Windowed<>(key, new SessionWindow(start, end)));
                return null;
            default:
                throw notFor(action, "session");
        }
    }

    private static boolean isTimestamped(StateStore store) {
        return store instanceof TimestampedKeyValueStore<?, ?> || store instanceof TimestampedWindowStore<?, ?>;
    }

    private static Object newValue(Params action, boolean timestamped, Script script) {
        Object value = script.evaluate(action.pipeline("value"));
        return timestamped ? ValueAndTimestamp.make(value, time(action, "ts", script)) : value;
    }

    /** A time the action gives; the record's own if it gives none. */
    private static long time(Params action, String name, Script script) {
        return Values.asLong(action.mentions(name) ? script.evaluate(action.pipeline(name)) : script.fact("ts", null));
    }

    private static ScenarioError notFor(Params action, String kind) {
        return new ScenarioError("Not an action on a " + kind + " store: " + action.text("do"));
    }
}
