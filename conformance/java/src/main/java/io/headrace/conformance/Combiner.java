package io.headrace.conformance;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A function of two arguments: aggregate and value, or left and right. */
final class Combiner {

    private final String name;
    private final String argument;

    private Combiner(String name, String argument) {
        this.name = name;
        this.argument = argument;
    }

    static Combiner parse(String expression) {
        int colon = expression.indexOf(':');
        return colon < 0
            ? new Combiner(expression, null)
            : new Combiner(expression.substring(0, colon), expression.substring(colon + 1));
    }

    Object apply(Object key, Object a, Object b) {
        switch (name) {
            case "sum": return Values.add(orZero(a), orZero(b));
            case "sub": return Values.subtract(orZero(a), orZero(b));
            case "sum_or_null": return a == null || b == null ? null : Values.add(a, b);
            case "null_if_sum": return nullIfSum(a, b);
            case "concat": return joined(a, argument == null ? "+" : argument, b);
            case "unconcat": return joined(a, argument == null ? "-" : argument, b);
            case "key_concat": return Values.text(key) + ":" + joined(a, "+", b);
            case "min": return b == null || a != null && Values.compare(a, b) <= 0 ? a : b;
            case "max": return b == null || a != null && Values.compare(a, b) >= 0 ? a : b;
            case "first": case "left": return a;
            case "last": case "right": return b;
            case "pair": return Arrays.asList(a, b);
            case "key_pair": return Arrays.asList(key, a, b);
            case "count": return Values.add(orZero(a), 1L);
            case "uncount": return Values.subtract(orZero(a), 1L);
            case "append": return append(a, b);
            case "remove": return remove(a, b);
            case "list_concat": return concatenate(a, b);
            case "null": return null;
            case "fail": throw new UserError("fail");
            default: throw new ScenarioError("Unknown function of two arguments: " + name);
        }
    }

    private static Object orZero(Object number) {
        return number == null ? 0L : number;
    }

    private Object nullIfSum(Object a, Object b) {
        Object sum = Values.add(orZero(a), orZero(b));
        return sum.equals(Values.argument(argument)) ? null : sum;
    }

    private static String joined(Object a, String separator, Object b) {
        return Values.text(a) + separator + Values.text(b);
    }

    private static List<Object> append(Object list, Object item) {
        List<Object> items = items(list);
        items.add(item);
        return items;
    }

    private static List<Object> remove(Object list, Object item) {
        List<Object> items = items(list);
        items.remove(item);
        return items;
    }

    private static List<Object> concatenate(Object a, Object b) {
        List<Object> items = items(a);
        items.addAll(items(b));
        return items;
    }

    private static List<Object> items(Object list) {
        return list == null ? new ArrayList<>() : new ArrayList<>((List<?>) list);
    }
}
