package io.headrace.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.test.TestRecord;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** One run of a scenario: the steps, one after the other, and what came of them. */
final class Run implements AutoCloseable {

    private static final String STACK_TRACE = "__streams.errors.stacktrace";

    private final Params scenario;
    private final Program program;
    private final TopologyTestDriver driver;
    private final Map<String, TestInputTopic<byte[], byte[]>> inputs = new HashMap<>();
    private final Map<String, TestOutputTopic<Object, Object>> outputs = new TreeMap<>();
    private final Map<String, ArrayNode> written = new TreeMap<>();
    /** The keys that were piped, by the name of their serde. */
    private final Map<String, Set<Object>> keys = new HashMap<>();
    private double droppedBefore;

    Run(Params scenario, Program program, TopologyTestDriver driver) {
        this.scenario = scenario;
        this.program = program;
        this.driver = driver;
        Params config = scenario.params("config");
        if (config.has("dead_letter_queue")) {
            program.output(config.text("dead_letter_queue"), "bytes", "bytes");
        }
        program.outputs.forEach((topic, serdes) -> outputs.put(topic, driver.createOutputTopic(
            topic,
            ScenarioSerdes.of(serdes.key()).deserializer(),
            ScenarioSerdes.of(serdes.value()).deserializer())));
    }

    /** Runs all steps, or up to the first that fails. */
    ArrayNode steps() {
        ArrayNode results = Json.MAPPER.createArrayNode();
        for (Params step : scenario.list("steps")) {
            ObjectNode result = results.addObject();
            try {
                run(step, result);
            } catch (RuntimeException error) {
                ScenarioError.rethrow(error);
                result.removeAll();
                result.set("error", Failure.toJson(error));
                result.putObject("out");
                break;
            }
        }
        return results;
    }

    private void run(Params step, ObjectNode result) {
        if (step.has("snapshot")) {
            result.set("store", entries(step.text("snapshot")));
        } else if (step.has("query")) {
            result.set("rows", rows(query(step.params("query"))));
        } else {
            if (step.has("pipe")) {
                pipe(step);
            } else {
                driver.advanceWallClockTime(Duration.ofMillis(step.number("advance_wall_clock")));
            }
            result.set("out", drain());
            addNewlyDropped(result);
        }
    }

    private void pipe(Params step) {
        String topic = step.text("pipe");
        Program.TopicSerdes serdes = program.inputSerdes(topic);
        byte[] key = bytes(step, "key", serdes.key(), topic);
        byte[] value = bytes(step, "value", serdes.value(), topic);
        if (step.has("key")) {
            keys.computeIfAbsent(serdes.key(), serde -> new LinkedHashSet<>()).add(Values.fromJson(step.json("key")));
        }
        Instant time = Instant.ofEpochMilli(step.number("ts", 0));
        input(topic).pipeInput(new TestRecord<>(key, value, headers(step), time));
    }

    private TestInputTopic<byte[], byte[]> input(String topic) {
        Serializer<byte[]> asTheyAre = new ByteArraySerializer();
        return inputs.computeIfAbsent(topic, name -> driver.createInputTopic(name, asTheyAre, asTheyAre));
    }

    private static byte[] bytes(Params step, String part, String serde, String topic) {
        if (step.mentions("raw_" + part)) {
            return step.has("raw_" + part) ? HexFormat.of().parseHex(step.text("raw_" + part)) : null;
        }
        Object value = ScenarioSerdes.fitting(serde, Values.fromJson(step.json(part)));
        try {
            return ScenarioSerdes.of(serde).serializer().serialize(topic, value);
        } catch (ClassCastException error) {
            throw new ScenarioError("The " + part + " piped into " + topic + " is not a " + serde + ": " + step.json(part));
        }
    }

    private static Headers headers(Params step) {
        Headers headers = new RecordHeaders();
        for (JsonNode header : step.json("headers")) {
            JsonNode value = header.get(1);
            headers.add(header.get(0).asText(), value.isNull() ? null : value.asText().getBytes(StandardCharsets.UTF_8));
        }
        return headers;
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    private List<StoreRow> query(Params query) {
        return StoreReader.read(
            store(query.text("store")),
            query.text("method"),
            Values.fromJson(query.json("key")),
            Values.fromJson(query.json("from")),
            Values.fromJson(query.json("to")));
    }

    private StateStore store(String name) {
        StateStore store = driver.getAllStateStores().get(name);
        if (store == null) {
            throw new ScenarioError("No store " + name);
        }
        return store;
    }

    private ObjectNode drain() {
        ObjectNode out = Json.MAPPER.createObjectNode();
        outputs.forEach((topic, output) -> {
            ArrayNode records = Json.MAPPER.createArrayNode();
            while (!output.isEmpty()) {
                records.add(recordJson(output.readRecord()));
            }
            if (!records.isEmpty()) {
                out.set(topic, records);
                written.computeIfAbsent(topic, name -> Json.MAPPER.createArrayNode()).addAll(records);
            }
        });
        return out;
    }

    private static ObjectNode recordJson(TestRecord<Object, Object> record) {
        ObjectNode json = Json.MAPPER.createObjectNode();
        json.set("key", Values.toJson(record.key()));
        json.set("value", Values.toJson(record.value()));
        json.put("ts", record.timestamp());
        ArrayNode headers = Json.MAPPER.createArrayNode();
        for (Header header : record.headers()) {
            if (!header.key().equals(STACK_TRACE)) {
                headers.addArray().add(header.key()).add(text(header.value()));
            }
        }
        if (!headers.isEmpty()) {
            json.set("headers", headers);
        }
        return json;
    }

    /** Topic → all its records. */
    ObjectNode topics() {
        ObjectNode topics = Json.MAPPER.createObjectNode();
        written.forEach(topics::set);
        return topics;
    }

    /** Store → its kind and entries, for every store the scenario names. */
    ObjectNode stores() {
        ObjectNode stores = Json.MAPPER.createObjectNode();
        Map<String, StateStore> all = driver.getAllStateStores();
        program.stores.keySet().stream()
            .filter(name -> all.get(name) != null)
            .forEach(name -> stores.set(name, entries(name)));
        return stores;
    }

    private ObjectNode entries(String name) {
        StateStore store = store(name);
        Set<Object> candidates = keys.getOrDefault(program.stores.get(name), Set.of());
        ObjectNode json = Json.MAPPER.createObjectNode().put("type", StoreReader.type(store));
        json.set("entries", rows(StoreReader.entries(store, candidates)));
        return json;
    }

    private static ArrayNode rows(List<StoreRow> rows) {
        ArrayNode json = Json.MAPPER.createArrayNode();
        rows.forEach(row -> json.add(row.toJson()));
        return json;
    }

    private void addNewlyDropped(ObjectNode result) {
        double dropped = droppedByTask().values().stream().mapToDouble(Double::doubleValue).sum();
        if (dropped > droppedBefore) {
            result.put("dropped", (long) (dropped - droppedBefore));
        }
        droppedBefore = dropped;
    }

    void addDropped(ObjectNode golden) {
        Map<String, Double> byTask = droppedByTask();
        golden.put("dropped", (long) byTask.values().stream().mapToDouble(Double::doubleValue).sum());
        ObjectNode tasks = golden.putObject("dropped_by_task");
        byTask.forEach(tasks::put);
    }

    private Map<String, Double> droppedByTask() {
        Map<String, Double> dropped = new TreeMap<>();
        driver.metrics().forEach((name, metric) -> {
            if (isDroppedTotal(name)) {
                dropped.merge(name.tags().get("task-id"), (Double) metric.metricValue(), Double::sum);
            }
        });
        return dropped;
    }

    private static boolean isDroppedTotal(MetricName name) {
        return name.name().equals("dropped-records-total") && name.group().equals("stream-task-metrics");
    }

    @Override
    public void close() {
        try {
            driver.close();
        } catch (RuntimeException afterFailure) {
            // A driver that has failed cannot always be closed; what it did is recorded already.
        }
    }
}
