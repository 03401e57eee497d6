package io.headrace.conformance;

import com.fasterxml.jackson.databind.JsonNode;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** Where two goldens differ, as lines to read. */
final class Differences {

    /** Dead letter headers that name Java's classes and words, not the library's behaviour. */
    private static final Set<String> JAVA_HEADERS = Set.of("__streams.errors.exception", "__streams.errors.message");
    private static final int CHARACTERS = 200;
    private static final int LINES = 12;

    private final List<String> lines = new ArrayList<>();

    private Differences() { }

    static List<String> between(JsonNode committed, JsonNode recorded) {
        Differences differences = new Differences();
        differences.compare("", committed, recorded);
        List<String> lines = differences.lines;
        if (lines.size() > LINES) {
            lines.set(LINES, "… and " + (lines.size() - LINES) + " more");
            lines.subList(LINES + 1, lines.size()).clear();
        }
        return lines;
    }

    private void compare(String path, JsonNode committed, JsonNode recorded) {
        if (committed.equals(recorded) || isJavaHeader(committed) && isJavaHeader(recorded)) {
            return;
        }
        if (committed.isObject() && recorded.isObject()) {
            Set<String> names = new TreeSet<>();
            committed.fieldNames().forEachRemaining(names::add);
            recorded.fieldNames().forEachRemaining(names::add);
            names.forEach(name -> compare(path + "/" + name, committed.path(name), recorded.path(name)));
        } else if (committed.isArray() && recorded.isArray()) {
            for (int i = 0; i < Math.max(committed.size(), recorded.size()); i++) {
                compare(path + "/" + i, committed.path(i), recorded.path(i));
            }
        } else {
            lines.add(path + "\n      committed: " + shown(committed) + "\n      recorded:  " + shown(recorded));
        }
    }

    private static boolean isJavaHeader(JsonNode node) {
        return node.isArray() && node.size() == 2 && JAVA_HEADERS.contains(node.get(0).asText());
    }

    private static String shown(JsonNode node) {
        String text = node.isMissingNode() ? "(nothing)" : Json.compact(node);
        return text.length() <= CHARACTERS ? text : text.substring(0, CHARACTERS) + "…";
    }
}
