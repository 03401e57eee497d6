package io.headrace.conformance;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

import java.util.function.BiFunction;
import java.util.function.Function;

/** Joins of two streams, two tables, a stream and a table, a stream and a global table. */
@SuppressWarnings("unchecked")
final class JoinOperations {

    private JoinOperations() { }

    static Handle join(Params operation, Handle left, Handle right) {
        String value = operation.text("value", left.value());
        if (operation.text("op").startsWith("fk_")) {
            return new Handle(foreignKey(operation, left, right, value), left.key(), value);
        }
        if (left.dsl() instanceof KTable<?, ?>) {
            return new Handle(tables(operation, left, right, value), left.key(), value);
        }
        if (right.dsl() instanceof KStream<?, ?>) {
            return new Handle(streams(operation, left, right), left.key(), value);
        }
        if (right.dsl() instanceof GlobalKTable<?, ?>) {
            return new Handle(global(operation, left, right), left.key(), value);
        }
        return new Handle(streamAndTable(operation, left, right), left.key(), value);
    }

    private static ValueJoiner<Object, Object, Object> joiner(Params operation) {
        Combiner function = operation.combiner("fn");
        return (a, b) -> function.apply(null, a, b);
    }

    private static ValueJoinerWithKey<Object, Object, Object, Object> joinerWithKey(Params operation) {
        return operation.combiner("fn")::apply;
    }

    private static KStream<Object, Object> streams(Params operation, Handle left, Handle right) {
        KStream<Object, Object> stream = (KStream<Object, Object>) left.dsl();
        KStream<Object, Object> other = (KStream<Object, Object>) right.dsl();
        JoinWindows windows = Windows.join(operation.params("window"));
        StreamJoined<Object, Object, Object> joined = streamJoined(operation, left, right);
        boolean withKey = operation.flag("with_key");
        switch (operation.text("op")) {
            case "join":
                return withKey
                    ? stream.join(other, joinerWithKey(operation), windows, joined)
                    : stream.join(other, joiner(operation), windows, joined);
            case "left_join":
                return withKey
                    ? stream.leftJoin(other, joinerWithKey(operation), windows, joined)
                    : stream.leftJoin(other, joiner(operation), windows, joined);
            default:
                return withKey
                    ? stream.outerJoin(other, joinerWithKey(operation), windows, joined)
                    : stream.outerJoin(other, joiner(operation), windows, joined);
        }
    }

    private static StreamJoined<Object, Object, Object> streamJoined(Params operation, Handle left, Handle right) {
        StreamJoined<Object, Object, Object> joined = StreamJoined.with(
            ScenarioSerdes.of(left.key()), ScenarioSerdes.of(left.value()), ScenarioSerdes.of(right.value()));
        joined = operation.has("named") ? joined.withName(operation.text("named")) : joined;
        joined = operation.has("store") ? joined.withStoreName(operation.text("store")) : joined;
        return operation.flag("in_memory") ? joined.withDslStoreSuppliers(BuiltInDslStoreSuppliers.IN_MEMORY) : joined;
    }

    private static KStream<Object, Object> streamAndTable(Params operation, Handle left, Handle right) {
        KStream<Object, Object> stream = (KStream<Object, Object>) left.dsl();
        KTable<Object, Object> table = (KTable<Object, Object>) right.dsl();
        Serde<Object> key = ScenarioSerdes.of(left.key());
        Joined<Object, Object, Object> joined = Joined.with(key, ScenarioSerdes.of(left.value()), ScenarioSerdes.of(right.value()));
        joined = operation.has("named") ? joined.withName(operation.text("named")) : joined;
        joined = operation.has("grace") ? joined.withGracePeriod(operation.duration("grace")) : joined;
        boolean withKey = operation.flag("with_key");
        if (operation.text("op").equals("join")) {
            return withKey
                ? stream.join(table, joinerWithKey(operation), joined)
                : stream.join(table, joiner(operation), joined);
        }
        return withKey
            ? stream.leftJoin(table, joinerWithKey(operation), joined)
            : stream.leftJoin(table, joiner(operation), joined);
    }

    private static KStream<Object, Object> global(Params operation, Handle left, Handle right) {
        KStream<Object, Object> stream = (KStream<Object, Object>) left.dsl();
        GlobalKTable<Object, Object> table = (GlobalKTable<Object, Object>) right.dsl();
        KeyValueMapper<Object, Object, Object> key = operation.pipeline("key_fn")::apply;
        Named named = StreamOperations.named(operation);
        boolean withKey = operation.flag("with_key");
        if (operation.text("op").equals("join")) {
            return withKey
                ? stream.join(table, key, joinerWithKey(operation), named)
                : stream.join(table, key, joiner(operation), named);
        }
        return withKey
            ? stream.leftJoin(table, key, joinerWithKey(operation), named)
            : stream.leftJoin(table, key, joiner(operation), named);
    }

    private static KTable<Object, Object> tables(Params operation, Handle left, Handle right, String value) {
        KTable<Object, Object> table = (KTable<Object, Object>) left.dsl();
        KTable<Object, Object> other = (KTable<Object, Object>) right.dsl();
        Named named = StreamOperations.named(operation);
        boolean stored = Stored.isMentioned(operation);
        switch (operation.text("op")) {
            case "join":
                return stored
                    ? table.join(other, joiner(operation), named, Stored.materialized(operation, left.key(), value))
                    : table.join(other, joiner(operation), named);
            case "left_join":
                return stored
                    ? table.leftJoin(other, joiner(operation), named, Stored.materialized(operation, left.key(), value))
                    : table.leftJoin(other, joiner(operation), named);
            default:
                return stored
                    ? table.outerJoin(other, joiner(operation), named, Stored.materialized(operation, left.key(), value))
                    : table.outerJoin(other, joiner(operation), named);
        }
    }

    private static KTable<Object, Object> foreignKey(Params operation, Handle left, Handle right, String value) {
        KTable<Object, Object> table = (KTable<Object, Object>) left.dsl();
        KTable<Object, Object> other = (KTable<Object, Object>) right.dsl();
        Pipeline extractor = operation.pipeline("fk_fn");
        TableJoined<Object, Object> joined =
            operation.has("named") ? TableJoined.as(operation.text("named")) : TableJoined.with(null, null);
        if (operation.flag("with_key")) {
            BiFunction<Object, Object, Object> byKeyAndValue = extractor::apply;
            return operation.text("op").equals("fk_join")
                ? table.join(other, byKeyAndValue, joiner(operation), joined, Stored.materialized(operation, left.key(), value))
                : table.leftJoin(other, byKeyAndValue, joiner(operation), joined, Stored.materialized(operation, left.key(), value));
        }
        Function<Object, Object> byValue = v -> extractor.apply(null, v);
        return operation.text("op").equals("fk_join")
            ? table.join(other, byValue, joiner(operation), joined, Stored.materialized(operation, left.key(), value))
            : table.leftJoin(other, byValue, joiner(operation), joined, Stored.materialized(operation, left.key(), value));
    }
}
