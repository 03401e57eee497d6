package io.headrace.conformance;

import com.fasterxml.jackson.databind.JsonNode;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** One JSON object of a scenario, read by name: a source, an operation, a store, an action. */
record Params(JsonNode node) {

    boolean has(String name) {
        return node.hasNonNull(name);
    }

    /** Whether the name is there at all, be it as null. */
    boolean mentions(String name) {
        return node.has(name);
    }

    String text(String name) {
        if (!has(name)) {
            throw new ScenarioError("Missing \"" + name + "\" in " + Json.compact(node));
        }
        return node.get(name).asText();
    }

    String text(String name, String otherwise) {
        return has(name) ? node.get(name).asText() : otherwise;
    }

    long number(String name) {
        if (!has(name)) {
            throw new ScenarioError("Missing \"" + name + "\" in " + Json.compact(node));
        }
        return node.get(name).asLong();
    }

    long number(String name, long otherwise) {
        return has(name) ? node.get(name).asLong() : otherwise;
    }

    Duration duration(String name) {
        return Duration.ofMillis(number(name));
    }

    boolean flag(String name) {
        return node.path(name).asBoolean(false);
    }

    JsonNode json(String name) {
        return node.path(name);
    }

    Params params(String name) {
        return new Params(node.path(name));
    }

    List<Params> list(String name) {
        List<Params> items = new ArrayList<>();
        node.path(name).forEach(item -> items.add(new Params(item)));
        return items;
    }

    List<String> texts(String name) {
        List<String> items = new ArrayList<>();
        node.path(name).forEach(item -> items.add(item.asText()));
        return items;
    }

    Pipeline pipeline(String name) {
        return Pipeline.parse(node.path(name));
    }

    Combiner combiner(String name) {
        return Combiner.parse(text(name));
    }
}
