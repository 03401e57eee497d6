package io.headrace.conformance;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyDescription;

import java.util.Collection;
import java.util.Set;
import java.util.TreeSet;

/** The names in a topology: its nodes and stores, the internal topics it wrote to, its description. */
final class Names {

    private Names() { }

    static ObjectNode of(Topology topology, Collection<String> produced) {
        Set<String> processors = new TreeSet<>();
        Set<String> stores = new TreeSet<>();
        for (TopologyDescription.Subtopology part : topology.describe().subtopologies()) {
            for (TopologyDescription.Node node : part.nodes()) {
                processors.add(node.name());
                if (node instanceof TopologyDescription.Processor processor) {
                    stores.addAll(processor.stores());
                }
            }
        }
        ObjectNode names = Json.MAPPER.createObjectNode();
        names.set("processors", list(processors));
        names.set("stores", list(stores));
        names.set("internal_topics", list(internalTopics(produced)));
        return names;
    }

    /** The lines of describe(); a class of ours, where it names one, is {@code LAMBDA}. */
    static ArrayNode describe(Topology topology) {
        ArrayNode lines = Json.MAPPER.createArrayNode();
        String text = topology.describe().toString().stripTrailing();
        text.lines().map(line -> line.replaceAll("\\(extractor class: .*\\)", "(extractor class: LAMBDA)")).forEach(lines::add);
        return lines;
    }

    private static Set<String> internalTopics(Collection<String> produced) {
        Set<String> topics = new TreeSet<>(produced);
        topics.removeIf(topic -> !topic.startsWith(Settings.APPLICATION + "-"));
        return topics;
    }

    private static ArrayNode list(Collection<String> names) {
        ArrayNode list = Json.MAPPER.createArrayNode();
        names.forEach(list::add);
        return list;
    }
}
