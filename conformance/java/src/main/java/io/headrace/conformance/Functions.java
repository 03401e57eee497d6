package io.headrace.conformance;

import org.apache.kafka.streams.kstream.Windowed;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;

/** The vocabulary of a scenario's one-argument functions, by name. */
final class Functions {

    private static final Set<String> NAMES = Set.of(
        "const", "null", "true", "false", "is_null", "not_null", "not", "eq", "ne", "or", "pair", "with_key", "empty", "fail",
        "fail_if", "split_words", "split", "repeat", "gt", "ge", "lt", "le", "positive", "negative", "even", "odd",
        "starts_with", "ends_with", "contains", "chars", "upto", "identity", "upper", "lower", "len", "reverse", "first",
        "append", "prepend", "str", "long", "double", "add", "sub", "mul", "neg", "mod", "null_if_negative", "null_if", "get",
        "at", "obj", "win_key", "win_start", "win_end", "win_str");

    private Functions() { }

    static void check(String name) {
        if (!NAMES.contains(name)) {
            throw new ScenarioError("Unknown function: " + name);
        }
    }

    /**
     * What one segment of a pipeline makes of {@code x}.
     *
     * @param name the function
     * @param argument what follows the colon, or null
     * @param key the key of the record at hand
     * @param x the value so far
     */
    static Object apply(String name, Object argument, Object key, Object x) {
        switch (name) {
            case "const": return argument;
            case "null": return null;
            case "true": return true;
            case "false": return false;
            case "is_null": return x == null;
            case "not_null": return x != null;
            case "not": return !Boolean.TRUE.equals(x);
            case "eq": return Objects.equals(x, argument);
            case "ne": return !Objects.equals(x, argument);
            case "or": return x == null ? argument : x;
            case "pair": return Arrays.asList(key, x);
            case "with_key": return Values.text(key) + ":" + Values.text(x);
            case "empty": return new ArrayList<>();
            case "fail": throw new UserError("fail");
            case "fail_if": return failIf(x, argument);
            case "split_words": return x == null ? new ArrayList<>() : parts((String) x, "\\s+");
            case "split": return x == null ? new ArrayList<>() : parts((String) x, Pattern.quote(Values.text(argument)));
            case "repeat": return new ArrayList<>(Collections.nCopies((int) Values.asLong(argument), x));
            default: return x == null ? ofNull(name) : ofValue(name, argument, x);
        }
    }

    private static Object failIf(Object x, Object argument) {
        if (Objects.equals(x, argument)) {
            throw new UserError("fail_if " + Values.text(argument));
        }
        return x;
    }

    private static List<Object> parts(String text, String separator) {
        List<Object> parts = new ArrayList<>();
        for (String part : text.split(separator)) {
            if (!part.isEmpty()) {
                parts.add(part);
            }
        }
        return parts;
    }

    private static Object ofNull(String name) {
        switch (name) {
            case "gt": case "ge": case "lt": case "le": case "positive": case "negative": case "even": case "odd":
            case "starts_with": case "ends_with": case "contains":
                return false;
            default:
                return null;
        }
    }

    private static Object ofValue(String name, Object argument, Object x) {
        switch (name) {
            case "gt": return Values.compare(x, argument) > 0;
            case "ge": return Values.compare(x, argument) >= 0;
            case "lt": return Values.compare(x, argument) < 0;
            case "le": return Values.compare(x, argument) <= 0;
            case "positive": return Values.compare(x, 0L) > 0;
            case "negative": return Values.compare(x, 0L) < 0;
            case "even": return Values.asLong(x) % 2 == 0;
            case "odd": return Values.asLong(x) % 2 != 0;
            case "starts_with": return ((String) x).startsWith(Values.text(argument));
            case "ends_with": return ((String) x).endsWith(Values.text(argument));
            case "contains": return ((String) x).contains(Values.text(argument));
            case "chars": return chars((String) x);
            case "upto": return upto(Values.asLong(x));
            case "identity": return x;
            case "upper": return ((String) x).toUpperCase(Locale.ROOT);
            case "lower": return ((String) x).toLowerCase(Locale.ROOT);
            case "len": return x instanceof List<?> list ? (long) list.size() : (long) length((String) x);
            case "reverse": return new StringBuilder((String) x).reverse().toString();
            case "first": return first((String) x, (int) Values.asLong(argument));
            case "append": return Values.text(x) + Values.text(argument);
            case "prepend": return Values.text(argument) + Values.text(x);
            case "str": return Values.text(x);
            case "long": return x instanceof String text ? Long.valueOf(text) : (Long) Values.asLong(x);
            case "double": return x instanceof String text ? Double.valueOf(text) : (Double) Values.asDouble(x);
            case "add": return Values.add(x, argument == null ? 0L : argument);
            case "sub": return Values.subtract(x, argument == null ? 0L : argument);
            case "mul": return Values.multiply(x, argument);
            case "neg": return Values.multiply(x, -1L);
            case "mod": return Values.modulo(x, argument);
            case "null_if_negative": return Values.compare(x, 0L) < 0 ? null : x;
            case "null_if": return x.equals(argument) ? null : x;
            case "get": return x instanceof Map<?, ?> map ? map.get(Values.text(argument)) : null;
            case "at": return at((List<?>) x, Values.asLong(argument));
            case "obj": return new TreeMap<>(Map.of(Values.text(argument), x));
            case "win_key": return ((Windowed<?>) x).key();
            case "win_start": return ((Windowed<?>) x).window().start();
            case "win_end": return ((Windowed<?>) x).window().end();
            case "win_str": return x.toString();
            default: throw new ScenarioError("Unknown function: " + name);
        }
    }

    private static List<Object> chars(String text) {
        List<Object> chars = new ArrayList<>();
        text.codePoints().forEach(point -> chars.add(Character.toString(point)));
        return chars;
    }

    private static List<Object> upto(long end) {
        List<Object> numbers = new ArrayList<>();
        for (long number = 1; number <= end; number++) {
            numbers.add(number);
        }
        return numbers;
    }

    private static int length(String text) {
        return text.codePointCount(0, text.length());
    }

    private static String first(String text, int count) {
        return length(text) <= count ? text : text.substring(0, text.offsetByCodePoints(0, count));
    }

    private static Object at(List<?> items, long index) {
        return index < 0 || index >= items.size() ? null : items.get((int) index);
    }
}
