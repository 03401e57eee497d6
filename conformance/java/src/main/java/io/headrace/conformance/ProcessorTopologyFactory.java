package io.headrace.conformance;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.AutoOffsetReset;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.state.StoreBuilder;

import java.util.List;
import java.util.Properties;
import java.util.regex.Pattern;

/** Builds a scenario's {@code topology} node by node, without the DSL. */
final class ProcessorTopologyFactory {

    private static final AutoOffsetReset NO_RESET = null;

    private final Params scenario;
    private final Program program = new Program();
    private final Topology topology;

    ProcessorTopologyFactory(Params scenario, Properties config) {
        this.scenario = scenario;
        this.topology = new Topology(new TopologyConfig(new StreamsConfig(config)));
    }

    Program build() {
        scenario.list("topology").forEach(this::add);
        program.topology = topology;
        return program;
    }

    private void add(Params node) {
        switch (node.text("add")) {
            case "source":
                addSource(node);
                break;
            case "processor":
                topology.addProcessor(node.text("name"), ScriptedProcessor.supplier(node), texts(node, "parents"));
                if (!node.texts("stores").isEmpty()) {
                    topology.connectProcessorAndStateStores(node.text("name"), texts(node, "stores"));
                }
                break;
            case "sink":
                addSink(node);
                break;
            case "store":
                topology.addStateStore(Stored.builder(node), texts(node, "processors"));
                program.stores.put(node.text("name"), node.text("key", "string"));
                break;
            case "connect":
                topology.connectProcessorAndStateStores(node.text("processor"), texts(node, "stores"));
                break;
            case "global_store":
                addGlobalStore(node);
                break;
            default:
                throw new ScenarioError("Unknown part of a topology: " + node.text("add"));
        }
    }

    private static String[] texts(Params node, String name) {
        return node.texts(name).toArray(String[]::new);
    }

    private void addSource(Params node) {
        String key = node.text("key", "string");
        String value = node.text("value", "string");
        Serde<Object> keySerde = ScenarioSerdes.of(key);
        Serde<Object> valueSerde = ScenarioSerdes.of(value);
        TimestampExtractor extractor = extractor(node);
        if (node.has("pattern")) {
            Pattern pattern = Pattern.compile(node.text("pattern"));
            program.input(pattern, key, value);
            topology.addSource(
                NO_RESET, node.text("name"), extractor, keySerde.deserializer(), valueSerde.deserializer(), pattern);
            return;
        }
        List<String> topics = node.has("topic") ? List.of(node.text("topic")) : node.texts("topics");
        topics.forEach(topic -> program.input(topic, key, value));
        topology.addSource(
            NO_RESET, node.text("name"), extractor,
            keySerde.deserializer(), valueSerde.deserializer(), topics.toArray(String[]::new));
    }

    private TimestampExtractor extractor(Params node) {
        String name = node.text("timestamp_extractor", scenario.params("config").text("timestamp_extractor", null));
        return name == null ? null : Extractors.of(name);
    }

    private void addSink(Params node) {
        String key = node.text("key", "string");
        String value = node.text("value", "string");
        Serde<Object> keySerde = ScenarioSerdes.of(key);
        Serde<Object> valueSerde = ScenarioSerdes.of(value);
        if (node.has("topic_fn")) {
            Pipeline function = node.pipeline("topic_fn");
            TopicNameExtractor<Object, Object> chosen = (k, v, context) -> (String) function.apply(k, v);
            node.texts("topics").forEach(topic -> program.output(topic, key, value));
            topology.addSink(node.text("name"), chosen, keySerde.serializer(), valueSerde.serializer(), texts(node, "parents"));
            return;
        }
        program.output(node.text("topic"), key, value);
        topology.addSink(
            node.text("name"), node.text("topic"), keySerde.serializer(), valueSerde.serializer(), texts(node, "parents"));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private void addGlobalStore(Params node) {
        Params store = node.params("store");
        String key = node.text("key", "string");
        String value = node.text("value", "string");
        program.input(node.text("topic"), key, value);
        program.stores.put(store.text("name"), store.text("key", "string"));
        topology.addGlobalStore(
            (StoreBuilder) Stored.builder(store).withLoggingDisabled(), node.text("source"), extractor(node),
            ScenarioSerdes.of(key).deserializer(), ScenarioSerdes.of(value).deserializer(),
            node.text("topic"), node.text("name"), (ProcessorSupplier) ScriptedProcessor.supplier(node));
    }
}
