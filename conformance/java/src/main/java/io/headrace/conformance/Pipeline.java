package io.headrace.conformance;

import com.fasterxml.jackson.databind.JsonNode;

import java.util.ArrayList;
import java.util.List;

/** An expression of a scenario: functions one after the other over the value, or a constant. */
final class Pipeline {

    /** Where {@code $variable} and {@code @fact} come from; only processors have any. */
    interface Scope {
        Object variable(String name);

        Object fact(String name, String argument);
    }

    private static final Scope NOTHING = new Scope() {
        @Override
        public Object variable(String name) {
            throw new ScenarioError("No variables here: $" + name);
        }

        @Override
        public Object fact(String name, String argument) {
            throw new ScenarioError("No context here: @" + name);
        }
    };

    private record Segment(String name, String rawArgument, Object argument) { }

    private final boolean isConstant;
    private final Object constant;
    private final List<Segment> segments = new ArrayList<>();

    private Pipeline(boolean isConstant, Object constant) {
        this.isConstant = isConstant;
        this.constant = constant;
    }

    /** Text is a pipeline, anything else a constant; a missing node leaves the value as it is. */
    static Pipeline parse(JsonNode expression) {
        if (expression == null || expression.isMissingNode()) {
            return new Pipeline(false, null);
        }
        if (!expression.isTextual()) {
            return new Pipeline(true, Values.fromJson(expression));
        }
        return parse(expression.textValue());
    }

    static Pipeline parse(String expression) {
        Pipeline pipeline = new Pipeline(false, null);
        for (String part : expression.split("\\|", -1)) {
            int colon = part.indexOf(':');
            String name = colon < 0 ? part : part.substring(0, colon);
            String raw = colon < 0 ? null : part.substring(colon + 1);
            if (!name.equals("key") && !name.equals("value") && !name.startsWith("$") && !name.startsWith("@")) {
                Functions.check(name);
            }
            pipeline.segments.add(new Segment(name, raw, raw == null ? null : Values.argument(raw)));
        }
        return pipeline;
    }

    Object apply(Object key, Object value) {
        return apply(key, value, NOTHING);
    }

    boolean test(Object key, Object value) {
        return Boolean.TRUE.equals(apply(key, value));
    }

    Object apply(Object key, Object value, Scope scope) {
        if (isConstant) {
            return constant;
        }
        Object x = value;
        for (Segment segment : segments) {
            x = step(segment, key, value, x, scope);
        }
        return x;
    }

    private static Object step(Segment segment, Object key, Object value, Object x, Scope scope) {
        String name = segment.name();
        if (name.equals("key")) {
            return key;
        }
        if (name.equals("value")) {
            return value;
        }
        if (name.startsWith("$")) {
            return scope.variable(name.substring(1));
        }
        if (name.startsWith("@")) {
            return scope.fact(name.substring(1), segment.rawArgument());
        }
        return Functions.apply(name, argument(segment, scope), key, x);
    }

    private static Object argument(Segment segment, Scope scope) {
        String raw = segment.rawArgument();
        if (raw != null && raw.startsWith("$") && raw.length() > 1) {
            return scope.variable(raw.substring(1));
        }
        if (raw != null && raw.startsWith("@") && raw.length() > 1) {
            return scope.fact(raw.substring(1), null);
        }
        return segment.argument();
    }
}
