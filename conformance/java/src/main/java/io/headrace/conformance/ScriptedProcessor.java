package io.headrace.conformance;

import org.apache.kafka.common.header.Headers;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.Punctuator;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessingContext;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.StoreBuilder;

import java.time.Instant;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** A processor whose behaviour is a scenario's script. */
final class ScriptedProcessor implements Processor<Object, Object, Object, Object> {

    private final Params processor;
    private Script script;

    private ScriptedProcessor(Params processor) {
        this.processor = processor;
    }

    /** Of an operation with a {@code processor}, which may bring stores of its own. */
    static ProcessorSupplier<Object, Object, Object, Object> supplier(Params operation) {
        Params processor = operation.params("processor");
        return new ProcessorSupplier<>() {
            @Override
            public Processor<Object, Object, Object, Object> get() {
                return new ScriptedProcessor(processor);
            }

            @Override
            public Set<StoreBuilder<?>> stores() {
                return ownStores(processor);
            }
        };
    }

    static FixedKeyProcessorSupplier<Object, Object, Object> fixedKeySupplier(Params operation) {
        Params processor = operation.params("processor");
        return new FixedKeyProcessorSupplier<>() {
            @Override
            public FixedKeyProcessor<Object, Object, Object> get() {
                return new FixedKey(processor);
            }

            @Override
            public Set<StoreBuilder<?>> stores() {
                return ownStores(processor);
            }
        };
    }

    private static Set<StoreBuilder<?>> ownStores(Params processor) {
        List<Params> stores = processor.list("stores");
        if (stores.isEmpty()) {
            return null;
        }
        Set<StoreBuilder<?>> builders = new HashSet<>();
        stores.forEach(store -> builders.add(Stored.builder(store)));
        return builders;
    }

    @Override
    public void init(ProcessorContext<Object, Object> context) {
        script = new Script(new ContextHost(context) {
            @Override
            public void forward(Object key, Object value, long timestamp, Headers headers, String child) {
                Record<Object, Object> record = new Record<>(key, value, timestamp, headers);
                if (child == null) {
                    context.forward(record);
                } else {
                    context.forward(record, child);
                }
            }
        });
        script.start(processor.list("init"));
    }

    @Override
    public void process(Record<Object, Object> record) {
        script.process(processor.list("process"), record.key(), record.value(), record.timestamp(), record.headers());
    }

    /** The same for process_values: it cannot change the key, nor forward outside of a record. */
    private static final class FixedKey implements FixedKeyProcessor<Object, Object, Object> {

        private final Params processor;
        private Script script;
        private FixedKeyRecord<Object, Object> current;

        private FixedKey(Params processor) {
            this.processor = processor;
        }

        @Override
        public void init(FixedKeyProcessorContext<Object, Object> context) {
            script = new Script(new ContextHost(context) {
                @Override
                public void forward(Object key, Object value, long timestamp, Headers headers, String child) {
                    FixedKeyRecord<Object, Object> record =
                        current.withValue(value).withTimestamp(timestamp).withHeaders(headers);
                    if (child == null) {
                        context.forward(record);
                    } else {
                        context.forward(record, child);
                    }
                }
            });
            script.start(processor.list("init"));
        }

        @Override
        public void process(FixedKeyRecord<Object, Object> record) {
            current = record;
            script.process(processor.list("process"), record.key(), record.value(), record.timestamp(), record.headers());
        }
    }

    /** What both kinds of context share. */
    private abstract static class ContextHost implements Script.Host {

        private final ProcessingContext context;

        ContextHost(ProcessingContext context) {
            this.context = context;
        }

        @Override
        public StateStore store(String name) {
            return context.getStateStore(name);
        }

        @Override
        public Cancellable schedule(Params schedule, PunctuationType type, Punctuator punctuator) {
            return schedule.has("start")
                ? context.schedule(
                    Instant.ofEpochMilli(schedule.number("start")), schedule.duration("interval"), type, punctuator)
                : context.schedule(schedule.duration("interval"), type, punctuator);
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
                case "topic": return context.recordMetadata().map(RecordMetadata::topic).orElse(null);
                case "partition": return context.recordMetadata().map(data -> (long) data.partition()).orElse(null);
                case "offset": return context.recordMetadata().map(RecordMetadata::offset).orElse(null);
                default: throw new ScenarioError("Unknown fact: @" + name);
            }
        }
    }
}
