package io.headrace.conformance;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;

import java.util.ArrayList;
import java.util.List;

/**
 * Reading JSON, and the one way goldens are laid out: a list or an object stays on its line while it
 * fits, the outermost object never does.
 */
final class Json {

    private static final int WIDTH = 150;

    static final ObjectMapper MAPPER = new ObjectMapper()
        .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
        .enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS);

    private Json() { }

    static JsonNode parse(String text) throws JsonProcessingException {
        return MAPPER.readTree(text);
    }

    static String compact(JsonNode node) {
        return node.toString();
    }

    /** The file layout of scenarios and goldens, with a final newline. */
    static String pretty(JsonNode node) {
        StringBuilder text = new StringBuilder();
        write(node, 0, text);
        return text.append('\n').toString();
    }

    private static void write(JsonNode node, int depth, StringBuilder text) {
        String line = compact(node);
        boolean fits = depth > 0 && line.codePointCount(0, line.length()) + 2 * depth <= WIDTH;
        if (!node.isContainerNode() || node.isEmpty() || fits) {
            text.append(line);
            return;
        }
        String margin = "  ".repeat(depth + 1);
        text.append(node.isObject() ? "{\n" : "[\n");
        String separator = "";
        for (Entry entry : entries(node)) {
            text.append(separator).append(margin).append(entry.label());
            write(entry.value(), depth + 1, text);
            separator = ",\n";
        }
        text.append('\n').append("  ".repeat(depth)).append(node.isObject() ? '}' : ']');
    }

    private record Entry(String label, JsonNode value) { }

    private static List<Entry> entries(JsonNode node) {
        List<Entry> entries = new ArrayList<>();
        if (node.isObject()) {
            node.properties().forEach(field ->
                entries.add(new Entry(MAPPER.getNodeFactory().textNode(field.getKey()) + ": ", field.getValue())));
        } else {
            node.forEach(item -> entries.add(new Entry("", item)));
        }
        return entries;
    }
}
