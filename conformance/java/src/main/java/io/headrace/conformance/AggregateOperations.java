package io.headrace.conformance;

import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.SessionWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.processor.StateStore;

import java.util.List;

/** count, reduce and aggregate of everything grouped; windows and cogroups on the way there. */
@SuppressWarnings("unchecked")
final class AggregateOperations {

    private AggregateOperations() { }

    static Handle cogroup(Params operation, List<Handle> inputs) {
        List<String> functions = operation.texts("fns");
        CogroupedKStream<Object, Object> cogrouped = null;
        for (int i = 0; i < inputs.size(); i++) {
            KGroupedStream<Object, Object> grouped = (KGroupedStream<Object, Object>) inputs.get(i).dsl();
            Aggregator<Object, Object, Object> aggregator = aggregator(Combiner.parse(functions.get(i)));
            cogrouped = cogrouped == null ? grouped.cogroup(aggregator) : cogrouped.cogroup(grouped, aggregator);
        }
        Handle first = inputs.get(0);
        return new Handle(cogrouped, first.key(), operation.text("value", first.value()));
    }

    static Handle windowedBy(Params operation, Handle input) {
        Params window = operation.params("window");
        Object windowed;
        String key;
        switch (window.text("type")) {
            case "tumbling": case "hopping":
                windowed = input.dsl() instanceof CogroupedKStream<?, ?> cogrouped
                    ? cogrouped.windowedBy(Windows.time(window))
                    : ((KGroupedStream<?, ?>) input.dsl()).windowedBy(Windows.time(window));
                key = ScenarioSerdes.timeWindowed(input.key(), window.number("size"));
                break;
            case "sliding":
                windowed = input.dsl() instanceof CogroupedKStream<?, ?> cogrouped
                    ? cogrouped.windowedBy(Windows.sliding(window))
                    : ((KGroupedStream<?, ?>) input.dsl()).windowedBy(Windows.sliding(window));
                key = ScenarioSerdes.timeWindowed(input.key(), window.number("difference"));
                break;
            case "session":
                windowed = input.dsl() instanceof CogroupedKStream<?, ?> cogrouped
                    ? cogrouped.windowedBy(Windows.session(window))
                    : ((KGroupedStream<?, ?>) input.dsl()).windowedBy(Windows.session(window));
                key = ScenarioSerdes.sessionWindowed(input.key());
                break;
            case "unlimited":
                windowed = input.dsl() instanceof CogroupedKStream<?, ?> cogrouped
                    ? cogrouped.windowedBy(Windows.unlimited(window))
                    : ((KGroupedStream<?, ?>) input.dsl()).windowedBy(Windows.unlimited(window));
                key = ScenarioSerdes.timeWindowed(input.key(), Long.MAX_VALUE);
                break;
            default:
                throw new ScenarioError("Unknown window type: " + window.text("type"));
        }
        return new Handle(emitting(operation, windowed), input.key(), input.value(), key);
    }

    private static Object emitting(Params operation, Object windowed) {
        if (!operation.has("emit")) {
            return windowed;
        }
        EmitStrategy strategy = operation.text("emit").equals("on_window_close")
            ? EmitStrategy.onWindowClose()
            : EmitStrategy.onWindowUpdate();
        return windowed instanceof SessionWindowedKStream<?, ?> sessions
            ? sessions.emitStrategy(strategy)
            : ((TimeWindowedKStream<?, ?>) windowed).emitStrategy(strategy);
    }

    static Handle count(Params operation, Handle input) {
        Named named = StreamOperations.named(operation);
        String key = input.key();
        Object grouped = input.dsl();
        Object table;
        if (grouped instanceof KGroupedStream<?, ?>) {
            table = ((KGroupedStream<Object, Object>) grouped).count(named, longs(operation, key));
        } else if (grouped instanceof KGroupedTable<?, ?>) {
            table = ((KGroupedTable<Object, Object>) grouped).count(named, longs(operation, key));
        } else if (grouped instanceof TimeWindowedKStream<?, ?>) {
            table = ((TimeWindowedKStream<Object, Object>) grouped).count(named, longs(operation, key));
        } else {
            table = ((SessionWindowedKStream<Object, Object>) grouped).count(named, longs(operation, key));
        }
        return new Handle(table, input.resultKey(), "long");
    }

    @SuppressWarnings("rawtypes")
    private static <S extends StateStore> Materialized<Object, Long, S> longs(Params operation, String key) {
        return (Materialized) Stored.materialized(operation, key, "long");
    }

    static Handle reduce(Params operation, Handle input) {
        Named named = StreamOperations.named(operation);
        String key = input.key();
        String value = operation.text("value", input.value());
        Combiner function = operation.combiner("fn");
        Object grouped = input.dsl();
        Object table;
        if (grouped instanceof KGroupedStream<?, ?>) {
            table = ((KGroupedStream<Object, Object>) grouped)
                .reduce((a, b) -> function.apply(null, a, b), named, Stored.materialized(operation, key, value));
        } else if (grouped instanceof KGroupedTable<?, ?>) {
            Combiner subtractor = operation.combiner("subtract");
            table = ((KGroupedTable<Object, Object>) grouped).reduce(
                (a, b) -> function.apply(null, a, b), (a, b) -> subtractor.apply(null, a, b),
                named, Stored.materialized(operation, key, value));
        } else if (grouped instanceof TimeWindowedKStream<?, ?>) {
            table = ((TimeWindowedKStream<Object, Object>) grouped)
                .reduce((a, b) -> function.apply(null, a, b), named, Stored.materialized(operation, key, value));
        } else {
            table = ((SessionWindowedKStream<Object, Object>) grouped)
                .reduce((a, b) -> function.apply(null, a, b), named, Stored.materialized(operation, key, value));
        }
        return new Handle(table, input.resultKey(), value);
    }

    static Handle aggregate(Params operation, Handle input) {
        String value = operation.text("value", input.value());
        return new Handle(aggregated(operation, input, value), input.resultKey(), value);
    }

    private static Object aggregated(Params operation, Handle input, String value) {
        Named named = StreamOperations.named(operation);
        String key = input.key();
        Object grouped = input.dsl();
        Initializer<Object> start = () -> ScenarioSerdes.fitting(value, Values.fromJson(operation.json("init")));
        if (grouped instanceof CogroupedKStream<?, ?>) {
            return ((CogroupedKStream<Object, Object>) grouped)
                .aggregate(start, named, Stored.materialized(operation, key, value));
        }
        if (grouped instanceof TimeWindowedCogroupedKStream<?, ?>) {
            return ((TimeWindowedCogroupedKStream<Object, Object>) grouped)
                .aggregate(start, named, Stored.materialized(operation, key, value));
        }
        if (grouped instanceof SessionWindowedCogroupedKStream<?, ?>) {
            return ((SessionWindowedCogroupedKStream<Object, Object>) grouped)
                .aggregate(start, merger(operation), named, Stored.materialized(operation, key, value));
        }
        Aggregator<Object, Object, Object> aggregator = aggregator(operation.combiner("fn"));
        if (grouped instanceof KGroupedStream<?, ?>) {
            return ((KGroupedStream<Object, Object>) grouped)
                .aggregate(start, aggregator, named, Stored.materialized(operation, key, value));
        }
        if (grouped instanceof KGroupedTable<?, ?>) {
            return ((KGroupedTable<Object, Object>) grouped).aggregate(
                start, aggregator, aggregator(operation.combiner("subtract")), named,
                Stored.materialized(operation, key, value));
        }
        if (grouped instanceof TimeWindowedKStream<?, ?>) {
            return ((TimeWindowedKStream<Object, Object>) grouped)
                .aggregate(start, aggregator, named, Stored.materialized(operation, key, value));
        }
        return ((SessionWindowedKStream<Object, Object>) grouped)
            .aggregate(start, aggregator, merger(operation), named, Stored.materialized(operation, key, value));
    }

    private static Aggregator<Object, Object, Object> aggregator(Combiner function) {
        return (key, value, aggregate) -> function.apply(key, aggregate, value);
    }

    private static Merger<Object, Object> merger(Params operation) {
        return operation.combiner("merger")::apply;
    }
}
