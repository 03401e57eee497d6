package io.headrace.conformance;

import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;

/** Builds a scenario's stores, sources and operations with the DSL, in the order given. */
final class DslFactory {

    private final Params scenario;
    private final Properties config;
    private final StreamsBuilder builder;
    private final StreamOperations streams;
    private final Program program = new Program();
    private final Map<String, Handle> handles = new HashMap<>();

    DslFactory(Params scenario, Properties config, Effects effects) {
        this.scenario = scenario;
        this.config = config;
        this.builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(config)));
        this.streams = new StreamOperations(effects);
    }

    Program build() {
        for (Params store : scenario.list("stores")) {
            builder.addStateStore(Stored.builder(store));
            program.stores.put(store.text("name"), store.text("key", "string"));
        }
        scenario.list("sources").forEach(this::addSource);
        scenario.list("operations").forEach(this::addOperation);
        program.topology = builder.build(config);
        return program;
    }

    private void addSource(Params source) {
        String key = source.text("key", "string");
        String value = source.text("value", "string");
        rememberTopics(source, key, value);
        Object dsl = source(source, consumed(source, key, value), key, value);
        if (dsl != null) {
            handles.put(source.text("id"), new Handle(dsl, key, value));
        }
    }

    private void rememberTopics(Params source, String key, String value) {
        if (source.has("pattern")) {
            program.input(Pattern.compile(source.text("pattern")), key, value);
        }
        topics(source).forEach(topic -> program.input(topic, key, value));
        if (source.json("store").isTextual()) {
            program.stores.put(source.text("store"), key);
        } else if (source.has("store")) {
            program.stores.put(source.params("store").text("name"), key);
        }
    }

    private static List<String> topics(Params source) {
        return source.has("topic") ? List.of(source.text("topic")) : source.texts("topics");
    }

    private Object source(Params source, Consumed<Object, Object> consumed, String key, String value) {
        switch (source.text("type")) {
            case "stream":
                return source.has("pattern")
                    ? builder.stream(Pattern.compile(source.text("pattern")), consumed)
                    : builder.stream(topics(source), consumed);
            case "table":
                return Stored.isMentioned(source)
                    ? builder.table(source.text("topic"), consumed, Stored.materialized(source, key, value))
                    : builder.table(source.text("topic"), consumed);
            case "global_table":
                return Stored.isMentioned(source)
                    ? builder.globalTable(source.text("topic"), consumed, Stored.materialized(source, key, value))
                    : builder.globalTable(source.text("topic"), consumed);
            case "global_store":
                addGlobalStore(source, consumed);
                return null;
            default:
                throw new ScenarioError("Unknown source type: " + source.text("type"));
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private void addGlobalStore(Params source, Consumed<Object, Object> consumed) {
        ProcessorSupplier supplier = ScriptedProcessor.supplier(source);
        builder.addGlobalStore(
            Stored.builder(source.params("store")).withLoggingDisabled(), source.text("topic"), consumed, supplier);
    }

    private Consumed<Object, Object> consumed(Params source, String key, String value) {
        Consumed<Object, Object> consumed = Consumed.with(ScenarioSerdes.of(key), ScenarioSerdes.of(value));
        String extractor = source.text("timestamp_extractor", scenario.params("config").text("timestamp_extractor", null));
        consumed = extractor == null ? consumed : consumed.withTimestampExtractor(Extractors.of(extractor));
        return source.has("named") ? consumed.withName(source.text("named")) : consumed;
    }

    private void addOperation(Params operation) {
        String id = operation.text("id");
        List<Handle> inputs = new ArrayList<>();
        for (String input : operation.texts("in")) {
            if (!handles.containsKey(input)) {
                throw new ScenarioError("Operation " + id + " reads an unknown " + input);
            }
            inputs.add(handles.get(input));
        }
        Handle first = inputs.get(0);
        rememberStoreAndOutputs(operation, first);
        if (operation.text("op").equals("split")) {
            streams.split(operation, first).forEach((name, branch) -> handles.put(id + "/" + name, branch));
            return;
        }
        Handle result = apply(operation, inputs);
        if (result != null) {
            handles.put(id, result);
        }
    }

    private void rememberStoreAndOutputs(Params operation, Handle input) {
        String key = operation.text("key", input.key());
        String value = operation.text("value", input.value());
        if (operation.has("store")) {
            program.stores.put(operation.text("store"), key);
        }
        if (operation.text("op").equals("to")) {
            topics(operation).forEach(topic -> program.output(topic, key, value));
        }
        operation.list("branches").stream()
            .filter(branch -> branch.has("to"))
            .forEach(branch -> program.output(branch.text("to"), key, value));
    }

    private Handle apply(Params operation, List<Handle> inputs) {
        Handle first = inputs.get(0);
        switch (operation.text("op")) {
            case "merge": return streams.merge(operation, inputs);
            case "cogroup": return AggregateOperations.cogroup(operation, inputs);
            case "windowed_by": return AggregateOperations.windowedBy(operation, first);
            case "count": return AggregateOperations.count(operation, first);
            case "reduce": return AggregateOperations.reduce(operation, first);
            case "aggregate": return AggregateOperations.aggregate(operation, first);
            case "join": case "left_join": case "outer_join": case "fk_join": case "fk_left_join":
                return JoinOperations.join(operation, first, inputs.get(1));
            default:
                return first.dsl() instanceof KTable<?, ?>
                    ? TableOperations.apply(operation, first)
                    : streams.apply(operation, first);
        }
    }
}
