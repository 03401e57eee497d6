package io.headrace.conformance;

import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.Suppressed.EagerBufferConfig;
import org.apache.kafka.streams.kstream.Suppressed.StrictBufferConfig;
import org.apache.kafka.streams.kstream.Windowed;

/** Operations on a KTable, apart from joins. */
@SuppressWarnings("unchecked")
final class TableOperations {

    private TableOperations() { }

    static Handle apply(Params operation, Handle input) {
        KTable<Object, Object> table = (KTable<Object, Object>) input.dsl();
        String key = operation.text("key", input.key());
        String value = operation.text("value", input.value());
        switch (operation.text("op")) {
            case "filter":
                return input.with(filter(operation, table, input.key(), input.value()));
            case "filter_not":
                return input.with(filterNot(operation, table, input.key(), input.value()));
            case "map_values":
                return new Handle(mapValues(operation, table, input.key(), value), input.key(), value);
            case "transform_values":
                return new Handle(transformValues(operation, table, input.key(), value), input.key(), value);
            case "to_stream":
                return new Handle(toStream(operation, table), key, value);
            case "group_by":
                return new Handle(groupBy(operation, table, key, value), key, value);
            case "suppress":
                return input.with(table.suppress(suppressed(operation)));
            default:
                throw new ScenarioError("Not an operation on a table: " + operation.text("op"));
        }
    }

    private static KTable<Object, Object> filter(Params operation, KTable<Object, Object> table, String key, String value) {
        Pipeline function = operation.pipeline("fn");
        Named named = StreamOperations.named(operation);
        return Stored.isMentioned(operation)
            ? table.filter(function::test, named, Stored.materialized(operation, key, value))
            : table.filter(function::test, named);
    }

    private static KTable<Object, Object> filterNot(Params operation, KTable<Object, Object> table, String key, String value) {
        Pipeline function = operation.pipeline("fn");
        Named named = StreamOperations.named(operation);
        return Stored.isMentioned(operation)
            ? table.filterNot(function::test, named, Stored.materialized(operation, key, value))
            : table.filterNot(function::test, named);
    }

    private static KTable<Object, Object> mapValues(Params operation, KTable<Object, Object> table, String key, String value) {
        Pipeline function = operation.pipeline("fn");
        Named named = StreamOperations.named(operation);
        if (operation.flag("with_key")) {
            return Stored.isMentioned(operation)
                ? table.mapValues((k, v) -> function.apply(k, v), named, Stored.materialized(operation, key, value))
                : table.mapValues((k, v) -> function.apply(k, v), named);
        }
        return Stored.isMentioned(operation)
            ? table.mapValues(v -> function.apply(null, v), named, Stored.materialized(operation, key, value))
            : table.mapValues(v -> function.apply(null, v), named);
    }

    private static KTable<Object, Object> transformValues(
        Params operation, KTable<Object, Object> table, String key, String value
    ) {
        Named named = StreamOperations.named(operation);
        String[] stores = operation.texts("stores").toArray(String[]::new);
        return Stored.isMentioned(operation)
            ? table.transformValues(
                ScriptedTransformer.supplier(operation), Stored.materialized(operation, key, value), named, stores)
            : table.transformValues(ScriptedTransformer.supplier(operation), named, stores);
    }

    private static KStream<Object, Object> toStream(Params operation, KTable<Object, Object> table) {
        Named named = StreamOperations.named(operation);
        return operation.has("key_fn")
            ? table.toStream(operation.pipeline("key_fn")::apply, named)
            : table.toStream(named);
    }

    private static KGroupedTable<Object, Object> groupBy(
        Params operation, KTable<Object, Object> table, String key, String value
    ) {
        Grouped<Object, Object> grouped =
            Grouped.with(operation.text("named", null), ScenarioSerdes.of(key), ScenarioSerdes.of(value));
        if (operation.text("fn", "").equals("null_result")) {
            return table.groupBy((k, v) -> (KeyValue<Object, Object>) null, grouped);
        }
        Pipeline keyFunction = operation.mentions("key_fn") ? operation.pipeline("key_fn") : Pipeline.parse("key");
        Pipeline valueFunction = operation.pipeline("value_fn");
        return table.groupBy((k, v) -> KeyValue.pair(keyFunction.apply(k, v), valueFunction.apply(k, v)), grouped);
    }

    @SuppressWarnings("rawtypes")
    private static Suppressed<Object> suppressed(Params operation) {
        Suppressed<?> suppressed = operation.has("time_limit")
            ? Suppressed.untilTimeLimit(operation.duration("time_limit"), buffer(operation))
            : Suppressed.<Windowed>untilWindowCloses((StrictBufferConfig) buffer(operation));
        suppressed = operation.has("named") ? suppressed.withName(operation.text("named")) : suppressed;
        return (Suppressed<Object>) suppressed;
    }

    private static BufferConfig<?> buffer(Params operation) {
        Params buffer = operation.params("buffer");
        if (!buffer.has("max_records") && !buffer.has("max_bytes")) {
            return BufferConfig.unbounded();
        }
        EagerBufferConfig limited = buffer.has("max_records")
            ? BufferConfig.maxRecords(buffer.number("max_records"))
            : BufferConfig.maxBytes(buffer.number("max_bytes"));
        if (buffer.has("max_records") && buffer.has("max_bytes")) {
            limited = limited.withMaxBytes(buffer.number("max_bytes"));
        }
        return buffer.text("full", "emit_early").equals("shut_down") ? limited.shutDownWhenFull() : limited.emitEarlyWhenFull();
    }
}
