package io.headrace.conformance;

import org.apache.kafka.streams.Topology;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/** A scenario made into a topology, and what a recorder must know to feed and read it. */
final class Program {

    /** The names of the serdes of a topic's records. */
    record TopicSerdes(String key, String value) { }

    Topology topology;
    final Map<String, TopicSerdes> outputs = new TreeMap<>();
    /** The stores the scenario names, with the names of their key serdes. */
    final Map<String, String> stores = new TreeMap<>();

    private final Map<String, TopicSerdes> inputs = new LinkedHashMap<>();
    private final Map<Pattern, TopicSerdes> patterns = new LinkedHashMap<>();

    void input(String topic, String key, String value) {
        inputs.putIfAbsent(topic, new TopicSerdes(key, value));
    }

    void input(Pattern topics, String key, String value) {
        patterns.put(topics, new TopicSerdes(key, value));
    }

    void output(String topic, String key, String value) {
        outputs.put(topic, new TopicSerdes(key, value));
    }

    /** What is piped into a topic no source reads is text; Kafka refuses it anyway. */
    TopicSerdes inputSerdes(String topic) {
        if (inputs.containsKey(topic)) {
            return inputs.get(topic);
        }
        return patterns.entrySet().stream()
            .filter(entry -> entry.getKey().matcher(topic).matches())
            .map(Map.Entry::getValue)
            .findFirst()
            .orElse(outputs.getOrDefault(topic, new TopicSerdes("string", "string")));
    }
}
