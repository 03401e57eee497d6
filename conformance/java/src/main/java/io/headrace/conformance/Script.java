package io.headrace.conformance;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.Punctuator;
import org.apache.kafka.streams.processor.StateStore;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Runs the actions of a scripted processor, whatever kind of processor it is. */
final class Script implements Pipeline.Scope {

    /** What the kind of processor offers. */
    interface Host {
        StateStore store(String name);

        Cancellable schedule(Params schedule, PunctuationType type, Punctuator punctuator);

        void commit();

        /** A fact other than of time and headers: stream_time, wall_clock, topic, partition, offset. */
        Object fact(String name);

        /** Sends a record on; {@code child} null means all children. */
        void forward(Object key, Object value, long timestamp, Headers headers, String child);
    }

    private final Host host;
    private final Map<String, Object> variables = new HashMap<>();
    private final Map<String, Cancellable> schedules = new HashMap<>();

    private Object key;
    private Object value;
    private long timestamp;
    private Headers headers = new RecordHeaders();
    private Long punctuatedAt;

    Script(Host host) {
        this.host = host;
    }

    /** Runs actions that belong to no record. */
    void start(List<Params> actions) {
        run(actions);
    }

    void process(List<Params> actions, Object key, Object value, long timestamp, Headers headers) {
        this.key = key;
        this.value = value;
        this.timestamp = timestamp;
        this.headers = headers;
        this.punctuatedAt = null;
        run(actions);
    }

    private void punctuate(List<Params> actions, long now) {
        key = null;
        value = null;
        timestamp = now;
        headers = new RecordHeaders();
        punctuatedAt = now;
        run(actions);
    }

    Object evaluate(Pipeline expression) {
        return expression.apply(key, value, this);
    }

    @Override
    public Object variable(String name) {
        return variables.get(name);
    }

    @Override
    public Object fact(String name, String argument) {
        switch (name) {
            case "ts": return timestamp;
            case "now": return punctuatedAt == null ? (Object) host.fact("wall_clock") : punctuatedAt;
            case "header": return header(argument);
            default: return host.fact(name);
        }
    }

    private Object header(String name) {
        Header header = headers.lastHeader(name);
        return header == null || header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8);
    }

    private void run(List<Params> actions) {
        for (Params action : actions) {
            run(action);
        }
    }

    private void run(Params action) {
        switch (action.text("do")) {
            case "let":
                variables.put(action.text("as"), evaluate(action.pipeline("expr")));
                break;
            case "if":
                run(action.list(Boolean.TRUE.equals(evaluate(action.pipeline("cond"))) ? "then" : "else"));
                break;
            case "get": case "as_of": case "put": case "put_if_absent": case "delete":
                bind(action, StoreActions.run(action, host.store(action.text("store")), this));
                break;
            case "each":
                each(action);
                break;
            case "forward":
                forward(action);
                break;
            case "schedule":
                schedule(action);
                break;
            case "cancel":
                schedules.get(action.text("as")).cancel();
                break;
            case "commit":
                host.commit();
                break;
            case "fail":
                throw new UserError("fail");
            default:
                throw new ScenarioError("Unknown action: " + action.text("do"));
        }
    }

    private void bind(Params action, Object result) {
        if (action.has("as")) {
            variables.put(action.text("as"), result);
        }
    }

    private void each(Params action) {
        StateStore store = host.store(action.text("store"));
        Object of = action.mentions("key") ? evaluate(action.pipeline("key")) : null;
        Object from = action.mentions("from") ? evaluate(action.pipeline("from")) : null;
        Object to = action.mentions("to") ? evaluate(action.pipeline("to")) : null;
        for (StoreRow row : StoreReader.read(store, action.text("method", "all"), of, from, to)) {
            variables.put("k", row.key());
            variables.put("v", row.value());
            variables.put("ts", row.timestamp());
            variables.put("start", row.start());
            variables.put("end", row.end());
            run(action.list("then"));
        }
    }

    private void forward(Params action) {
        Object newKey = action.mentions("key") ? evaluate(action.pipeline("key")) : key;
        Object newValue = action.mentions("value") ? evaluate(action.pipeline("value")) : value;
        long newTimestamp = action.mentions("ts") ? Values.asLong(evaluate(action.pipeline("ts"))) : timestamp;
        Headers newHeaders = headers;
        if (action.has("headers")) {
            newHeaders = new RecordHeaders(headers);
            for (var header : action.json("headers")) {
                Object text = evaluate(Pipeline.parse(header.get(1)));
                byte[] bytes = text == null ? null : Values.text(text).getBytes(StandardCharsets.UTF_8);
                newHeaders.add(header.get(0).asText(), bytes);
            }
        }
        host.forward(newKey, newValue, newTimestamp, newHeaders, action.text("to", null));
    }

    private void schedule(Params action) {
        boolean byStream = action.text("type").equals("stream_time");
        PunctuationType type = byStream ? PunctuationType.STREAM_TIME : PunctuationType.WALL_CLOCK_TIME;
        List<Params> then = action.list("then");
        Cancellable schedule = host.schedule(action, type, now -> punctuate(then, now));
        if (action.has("as")) {
            schedules.put(action.text("as"), schedule);
        }
    }
}
