package io.headrace.conformance;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;

/** What peek, foreach, print and split let us see besides the records, by operation. */
final class Effects {

    private final Map<String, ArrayNode> seen = new TreeMap<>();
    private final Map<String, Path> printed = new TreeMap<>();
    private final Path directory;

    Effects(Path directory) {
        this.directory = directory;
    }

    void record(String operation, Object key, Object value) {
        ArrayNode pair = Json.MAPPER.createArrayNode().add(Values.toJson(key)).add(Values.toJson(value));
        of(operation).add(pair);
    }

    void text(String operation, String text) {
        of(operation).add(text);
    }

    /** A file for the lines that an operation prints. */
    String file(String operation) {
        Path file = directory.resolve("printed-" + printed.size());
        printed.put(operation, file);
        return file.toString();
    }

    ObjectNode toJson() {
        printed.forEach(this::addPrinted);
        ObjectNode all = Json.MAPPER.createObjectNode();
        seen.forEach(all::set);
        return all;
    }

    private void addPrinted(String operation, Path file) {
        try {
            Files.readAllLines(file).forEach(line -> text(operation, line));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private ArrayNode of(String operation) {
        return seen.computeIfAbsent(operation, id -> Json.MAPPER.createArrayNode());
    }
}
