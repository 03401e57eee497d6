package io.headrace.conformance;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

import java.time.Duration;
import java.util.Map;

/** State stores as scenarios describe them: by hand, or as an operation's Materialized. */
final class Stored {

    private Stored() { }

    /** Whether the operation says anything about a store. */
    static boolean isMentioned(Params operation) {
        return operation.has("store") || operation.mentions("materialized");
    }

    @SuppressWarnings("unchecked")
    static <S extends StateStore> Materialized<Object, Object, S> materialized(Params operation, String key, String value) {
        Params options = operation.params("materialized");
        Materialized<Object, Object, S> materialized;
        if (options.has("versioned")) {
            VersionedBytesStoreSupplier supplier =
                Stores.persistentVersionedKeyValueStore(operation.text("store"), options.duration("versioned"));
            materialized = (Materialized<Object, Object, S>) (Materialized<?, ?, ?>) Materialized.as(supplier);
        } else if (operation.has("store")) {
            materialized = Materialized.as(operation.text("store"));
        } else {
            materialized = Materialized.with(null, null);
        }
        materialized = materialized.withKeySerde(ScenarioSerdes.of(key)).withValueSerde(ScenarioSerdes.of(value));
        if (options.has("in_memory")) {
            materialized = materialized.withStoreType(
                options.flag("in_memory") ? Materialized.StoreType.IN_MEMORY : Materialized.StoreType.ROCKS_DB);
        }
        if (options.has("caching")) {
            materialized = options.flag("caching") ? materialized.withCachingEnabled() : materialized.withCachingDisabled();
        }
        if (options.has("logging")) {
            materialized = options.flag("logging") ? materialized.withLoggingEnabled(Map.of()) : materialized.withLoggingDisabled();
        }
        if (options.has("retention")) {
            materialized = materialized.withRetention(options.duration("retention"));
        }
        return materialized;
    }

    /** A store of the scenario's {@code stores}. */
    static StoreBuilder<?> builder(Params store) {
        StoreBuilder<?> builder = bare(store);
        if (store.has("caching")) {
            builder = store.flag("caching") ? builder.withCachingEnabled() : builder.withCachingDisabled();
        }
        if (store.has("logging")) {
            builder = store.flag("logging") ? builder.withLoggingEnabled(Map.of()) : builder.withLoggingDisabled();
        }
        return builder;
    }

    private static StoreBuilder<?> bare(Params store) {
        String name = store.text("name");
        Serde<Object> key = ScenarioSerdes.of(store.text("key", "string"));
        Serde<Object> value = ScenarioSerdes.of(store.text("value", "string"));
        boolean inMemory = store.flag("in_memory");
        switch (store.text("type")) {
            case "key_value":
                return Stores.keyValueStoreBuilder(keyValue(name, inMemory), key, value);
            case "timestamped_key_value":
                return Stores.timestampedKeyValueStoreBuilder(
                    inMemory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentTimestampedKeyValueStore(name), key, value);
            case "lru":
                return Stores.keyValueStoreBuilder(Stores.lruMap(name, (int) store.number("capacity")), key, value);
            case "versioned":
                return Stores.versionedKeyValueStoreBuilder(
                    Stores.persistentVersionedKeyValueStore(name, store.duration("history_retention")), key, value);
            case "window":
                return Stores.windowStoreBuilder(window(store), key, value);
            case "timestamped_window":
                return Stores.timestampedWindowStoreBuilder(window(store), key, value);
            case "session":
                return Stores.sessionStoreBuilder(session(name, store.duration("retention"), inMemory), key, value);
            default:
                throw new ScenarioError("Unknown store type: " + store.text("type"));
        }
    }

    private static KeyValueBytesStoreSupplier keyValue(String name, boolean inMemory) {
        return inMemory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentKeyValueStore(name);
    }

    private static WindowBytesStoreSupplier window(Params store) {
        String name = store.text("name");
        Duration retention = store.duration("retention");
        Duration size = store.duration("size");
        boolean duplicates = store.flag("retain_duplicates");
        if (store.flag("in_memory")) {
            return Stores.inMemoryWindowStore(name, retention, size, duplicates);
        }
        return store.text("type").equals("window")
            ? Stores.persistentWindowStore(name, retention, size, duplicates)
            : Stores.persistentTimestampedWindowStore(name, retention, size, duplicates);
    }

    private static SessionBytesStoreSupplier session(String name, Duration retention, boolean inMemory) {
        return inMemory ? Stores.inMemorySessionStore(name, retention) : Stores.persistentSessionStore(name, retention);
    }
}
