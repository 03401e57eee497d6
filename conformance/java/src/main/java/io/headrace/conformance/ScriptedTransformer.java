package io.headrace.conformance;

import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.kstream.ValueTransformerWithKeySupplier;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.Punctuator;
import org.apache.kafka.streams.processor.StateStore;

/** A table's transform_values: actions, then a function for the result. */
final class ScriptedTransformer implements ValueTransformerWithKey<Object, Object, Object> {

    private final Params operation;
    private Script script;
    private ProcessorContext context;

    private ScriptedTransformer(Params operation) {
        this.operation = operation;
    }

    static ValueTransformerWithKeySupplier<Object, Object, Object> supplier(Params operation) {
        return () -> new ScriptedTransformer(operation);
    }

    @Override
    public void init(ProcessorContext context) {
        this.context = context;
        script = new Script(new ContextHost(context));
    }

    @Override
    public Object transform(Object key, Object value) {
        Headers headers = context.headers() == null ? new RecordHeaders() : context.headers();
        script.process(operation.list("do"), key, value, context.timestamp(), headers);
        return script.evaluate(operation.pipeline("fn"));
    }

    @Override
    public void close() { }

    private record ContextHost(ProcessorContext context) implements Script.Host {

        @Override
        public StateStore store(String name) {
            return context.getStateStore(name);
        }

        @Override
        public Cancellable schedule(Params schedule, PunctuationType type, Punctuator punctuator) {
            return context.schedule(schedule.duration("interval"), type, punctuator);
        }

        @Override
        public void commit() {
            context.commit();
        }

        @Override
        public Object fact(String name) {
            switch (name) {
                case "stream_time": return context.currentStreamTimeMs();
                case "wall_clock": return context.currentSystemTimeMs();
                case "topic": return context.topic();
                case "partition": return (long) context.partition();
                case "offset": return context.offset();
                default: throw new ScenarioError("Unknown fact: @" + name);
            }
        }

        @Override
        public void forward(Object key, Object value, long timestamp, Headers headers, String child) {
            throw new UnsupportedOperationException("transform_values returns its result, it does not forward");
        }
    }
}
