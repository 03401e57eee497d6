package io.headrace.conformance;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.streams.kstream.Windowed;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The values that flow through a scenario: null, Boolean, Long, Double, String, List, sorted Map, and
 * Kafka's Windowed as a key.
 */
final class Values {

    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private Values() { }

    static Object fromJson(JsonNode node) {
        if (node == null || node.isNull() || node.isMissingNode()) {
            return null;
        }
        if (node.isBoolean()) {
            return node.booleanValue();
        }
        if (node.isIntegralNumber()) {
            return node.longValue();
        }
        if (node.isNumber()) {
            return node.doubleValue();
        }
        if (node.isTextual()) {
            return node.textValue();
        }
        if (node.isArray()) {
            List<Object> items = new ArrayList<>();
            node.forEach(item -> items.add(fromJson(item)));
            return items;
        }
        Map<String, Object> fields = new TreeMap<>();
        node.properties().forEach(field -> fields.put(field.getKey(), fromJson(field.getValue())));
        return fields;
    }

    static JsonNode toJson(Object value) {
        if (value == null) {
            return NODES.nullNode();
        }
        if (value instanceof Boolean flag) {
            return NODES.booleanNode(flag);
        }
        if (value instanceof Long || value instanceof Integer) {
            return NODES.numberNode(((Number) value).longValue());
        }
        if (value instanceof Double number) {
            return NODES.numberNode(number);
        }
        if (value instanceof List<?> list) {
            ArrayNode items = NODES.arrayNode();
            list.forEach(item -> items.add(toJson(item)));
            return items;
        }
        if (value instanceof Map<?, ?> map) {
            ObjectNode fields = NODES.objectNode();
            map.forEach((name, item) -> fields.set(String.valueOf(name), toJson(item)));
            return fields;
        }
        if (value instanceof Windowed<?> windowed) {
            ObjectNode key = NODES.objectNode();
            key.set("key", toJson(windowed.key()));
            return key.put("start", windowed.window().start()).put("end", windowed.window().end());
        }
        return NODES.textNode(value.toString());
    }

    /** Text as it is, everything else as compact JSON; null is {@code null}. */
    static String text(Object value) {
        return value instanceof String text ? text : Json.compact(toJson(value));
    }

    /** The argument of a function: JSON if it parses, else the text itself. */
    static Object argument(String text) {
        try {
            JsonNode node = Json.parse(text);
            return node.isMissingNode() ? text : fromJson(node);
        } catch (JsonProcessingException notJson) {
            return text;
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static int compare(Object a, Object b) {
        if (a instanceof Long || b instanceof Long || a instanceof Double || b instanceof Double) {
            return bothLong(a, b) ? Long.compare(asLong(a), asLong(b)) : Double.compare(asDouble(a), asDouble(b));
        }
        return ((Comparable) a).compareTo(b);
    }

    static Object add(Object a, Object b) {
        return bothLong(a, b) ? (Object) (asLong(a) + asLong(b)) : (Object) (asDouble(a) + asDouble(b));
    }

    static Object subtract(Object a, Object b) {
        return bothLong(a, b) ? (Object) (asLong(a) - asLong(b)) : (Object) (asDouble(a) - asDouble(b));
    }

    static Object multiply(Object a, Object b) {
        return bothLong(a, b) ? (Object) (asLong(a) * asLong(b)) : (Object) (asDouble(a) * asDouble(b));
    }

    static Object modulo(Object a, Object b) {
        if (bothLong(a, b)) {
            return Math.floorMod(asLong(a), asLong(b));
        }
        double divisor = asDouble(b);
        return ((asDouble(a) % divisor) + divisor) % divisor;
    }

    private static boolean bothLong(Object a, Object b) {
        return a instanceof Long && b instanceof Long;
    }

    static long asLong(Object number) {
        return ((Number) number).longValue();
    }

    static double asDouble(Object number) {
        return ((Number) number).doubleValue();
    }
}
