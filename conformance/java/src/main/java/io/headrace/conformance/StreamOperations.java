package io.headrace.conformance;

import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Printed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.internals.NamedInternal;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Operations on a KStream, apart from joins. */
@SuppressWarnings("unchecked")
final class StreamOperations {

    private final Effects effects;

    StreamOperations(Effects effects) {
        this.effects = effects;
    }

    static Named named(Params operation) {
        return operation.has("named") ? Named.as(operation.text("named")) : NamedInternal.empty();
    }

    /** The result, or null for operations that end the stream. */
    Handle apply(Params operation, Handle input) {
        KStream<Object, Object> stream = (KStream<Object, Object>) input.dsl();
        String key = operation.text("key", input.key());
        String value = operation.text("value", input.value());
        Named named = named(operation);
        switch (operation.text("op")) {
            case "filter":
                return input.with(stream.filter(operation.pipeline("fn")::test, named));
            case "filter_not":
                return input.with(stream.filterNot(operation.pipeline("fn")::test, named));
            case "map":
                return new Handle(map(operation, stream, named), key, value);
            case "flat_map":
                return new Handle(flatMap(operation, stream, named), key, value);
            case "map_values":
                return new Handle(mapValues(operation, stream, named), key, value);
            case "flat_map_values":
                return new Handle(flatMapValues(operation, stream, named), key, value);
            case "select_key":
                return new Handle(stream.selectKey(operation.pipeline("key_fn")::apply, named), key, value);
            case "peek":
                return input.with(stream.peek((k, v) -> effects.record(operation.text("id"), k, v), named));
            case "foreach":
                stream.foreach((k, v) -> effects.record(operation.text("id"), k, v), named);
                return null;
            case "print":
                stream.print(printed(operation));
                return null;
            case "repartition":
                return new Handle(stream.repartition(repartitioned(operation, key, value)), key, value);
            case "to":
                to(operation, stream, produced(operation, key, value));
                return null;
            case "to_table":
                return new Handle(toTable(operation, stream, named, key, value), key, value);
            case "group_by_key":
                return new Handle(stream.groupByKey(grouped(operation, key, value)), key, value);
            case "group_by":
                return new Handle(
                    stream.groupBy(operation.pipeline("key_fn")::apply, grouped(operation, key, value)), key, value);
            case "process":
                return new Handle(process(operation, stream), key, value);
            case "process_values":
                return new Handle(processValues(operation, stream), key, value);
            default:
                throw new ScenarioError("Not an operation on a stream: " + operation.text("op"));
        }
    }

    Handle merge(Params operation, List<Handle> inputs) {
        KStream<Object, Object> merged = (KStream<Object, Object>) inputs.get(0).dsl();
        for (Handle input : inputs.subList(1, inputs.size())) {
            merged = merged.merge((KStream<Object, Object>) input.dsl(), named(operation));
        }
        return inputs.get(0).with(merged);
    }

    /** The branches under their Kafka names. */
    Map<String, Handle> split(Params operation, Handle input) {
        KStream<Object, Object> stream = (KStream<Object, Object>) input.dsl();
        BranchedKStream<Object, Object> branched = operation.has("named") ? stream.split(named(operation)) : stream.split();
        for (Params branch : operation.list("branches")) {
            Pipeline predicate = branch.pipeline("fn");
            branched = branched.branch(predicate::test, branched(branch, input));
        }
        Map<String, KStream<Object, Object>> streams;
        if (operation.json("default").isTextual()) {
            streams = branched.defaultBranch(Branched.as(operation.text("default")));
        } else {
            streams = operation.flag("default") ? branched.defaultBranch() : branched.noDefaultBranch();
        }
        Map<String, Handle> branches = new TreeMap<>();
        streams.forEach((name, branch) -> branches.put(name, input.with(branch)));
        branches.keySet().forEach(name -> effects.text(operation.text("id"), name));
        return branches;
    }

    private static Branched<Object, Object> branched(Params branch, Handle input) {
        String name = branch.text("as", null);
        if (!branch.has("to")) {
            return Branched.withFunction(stream -> stream, name);
        }
        Produced<Object, Object> produced = Produced.with(ScenarioSerdes.of(input.key()), ScenarioSerdes.of(input.value()));
        return Branched.withConsumer(stream -> stream.to(branch.text("to"), produced), name);
    }

    private static KStream<Object, Object> map(Params operation, KStream<Object, Object> stream, Named named) {
        if (operation.text("fn", "").equals("null_result")) {
            return stream.map((k, v) -> (KeyValue<Object, Object>) null, named);
        }
        Pipeline keyFunction = keyFunction(operation);
        Pipeline valueFunction = operation.pipeline("value_fn");
        return stream.map((k, v) -> KeyValue.pair(keyFunction.apply(k, v), valueFunction.apply(k, v)), named);
    }

    private static KStream<Object, Object> flatMap(Params operation, KStream<Object, Object> stream, Named named) {
        Pipeline items = operation.pipeline("fn");
        Pipeline keyFunction = keyFunction(operation);
        Pipeline valueFunction = operation.pipeline("value_fn");
        return stream.flatMap((k, v) -> {
            List<Object> list = (List<Object>) items.apply(k, v);
            if (list == null) {
                return (List<KeyValue<Object, Object>>) null;
            }
            List<KeyValue<Object, Object>> records = new ArrayList<>();
            list.forEach(item -> records.add(KeyValue.pair(keyFunction.apply(k, item), valueFunction.apply(k, item))));
            return records;
        }, named);
    }

    private static Pipeline keyFunction(Params operation) {
        return operation.mentions("key_fn") ? operation.pipeline("key_fn") : Pipeline.parse("key");
    }

    private static KStream<Object, Object> mapValues(Params operation, KStream<Object, Object> stream, Named named) {
        Pipeline function = operation.pipeline("fn");
        return operation.flag("with_key")
            ? stream.mapValues((k, v) -> function.apply(k, v), named)
            : stream.mapValues(v -> function.apply(null, v), named);
    }

    private static KStream<Object, Object> flatMapValues(Params operation, KStream<Object, Object> stream, Named named) {
        Pipeline function = operation.pipeline("fn");
        return operation.flag("with_key")
            ? stream.flatMapValues((k, v) -> (List<Object>) function.apply(k, v), named)
            : stream.flatMapValues(v -> (List<Object>) function.apply(null, v), named);
    }

    private Printed<Object, Object> printed(Params operation) {
        Printed<Object, Object> printed = Printed.toFile(effects.file(operation.text("id")));
        printed = operation.has("label") ? printed.withLabel(operation.text("label")) : printed;
        return operation.has("named") ? printed.withName(operation.text("named")) : printed;
    }

    private static Repartitioned<Object, Object> repartitioned(Params operation, String key, String value) {
        Repartitioned<Object, Object> repartitioned =
            Repartitioned.with(ScenarioSerdes.of(key), ScenarioSerdes.of(value));
        if (operation.has("named")) {
            repartitioned = repartitioned.withName(operation.text("named"));
        }
        if (operation.has("partitions")) {
            repartitioned = repartitioned.withNumberOfPartitions((int) operation.number("partitions"));
        }
        return repartitioned;
    }

    private static Produced<Object, Object> produced(Params operation, String key, String value) {
        Produced<Object, Object> produced = Produced.with(ScenarioSerdes.of(key), ScenarioSerdes.of(value));
        return operation.has("named") ? produced.withName(operation.text("named")) : produced;
    }

    private static void to(Params operation, KStream<Object, Object> stream, Produced<Object, Object> produced) {
        if (operation.has("topic_fn")) {
            Pipeline topic = operation.pipeline("topic_fn");
            stream.to((k, v, context) -> (String) topic.apply(k, v), produced);
        } else {
            stream.to(operation.text("topic"), produced);
        }
    }

    private static KTable<Object, Object> toTable(
        Params operation, KStream<Object, Object> stream, Named named, String key, String value
    ) {
        return stream.toTable(named, Stored.materialized(operation, key, value));
    }

    private static Grouped<Object, Object> grouped(Params operation, String key, String value) {
        return Grouped.with(operation.text("named", null), ScenarioSerdes.of(key), ScenarioSerdes.of(value));
    }

    private static KStream<Object, Object> process(Params operation, KStream<Object, Object> stream) {
        return operation.has("named")
            ? stream.process(ScriptedProcessor.supplier(operation), named(operation), stores(operation))
            : stream.process(ScriptedProcessor.supplier(operation), stores(operation));
    }

    private static KStream<Object, Object> processValues(Params operation, KStream<Object, Object> stream) {
        return operation.has("named")
            ? stream.processValues(ScriptedProcessor.fixedKeySupplier(operation), named(operation), stores(operation))
            : stream.processValues(ScriptedProcessor.fixedKeySupplier(operation), stores(operation));
    }

    private static String[] stores(Params operation) {
        return operation.texts("stores").toArray(String[]::new);
    }
}
