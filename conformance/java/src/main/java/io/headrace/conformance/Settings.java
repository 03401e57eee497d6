package io.headrace.conformance;

import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.ErrorHandlerContext;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.errors.LogAndFailExceptionHandler;
import org.apache.kafka.streams.errors.LogAndFailProcessingExceptionHandler;
import org.apache.kafka.streams.errors.ProductionExceptionHandler;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;

/** A scenario's config as Kafka's. */
final class Settings {

    static final String APPLICATION = "oracle";

    private static final String CONTINUE = "continue";

    private Settings() { }

    static Properties of(Params config, Path stateDirectory) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "unused:1");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, stateDirectory.toString());
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, config.number("cache", 0));
        properties.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, config.text("optimization", StreamsConfig.NO_OPTIMIZATION));
        if (config.has("max_task_idle_ms")) {
            properties.put(StreamsConfig.MAX_TASK_IDLE_MS_CONFIG, config.number("max_task_idle_ms"));
        }
        if (config.text("store", "").equals("in_memory")) {
            properties.put(
                StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        }
        if (config.has("ensure_explicit_naming")) {
            properties.put(
                StreamsConfig.ENSURE_EXPLICIT_INTERNAL_RESOURCE_NAMING_CONFIG, config.flag("ensure_explicit_naming"));
        }
        if (config.has("dead_letter_queue")) {
            properties.put(StreamsConfig.ERRORS_DEAD_LETTER_QUEUE_TOPIC_NAME_CONFIG, config.text("dead_letter_queue"));
        }
        addHandlers(config, properties);
        return properties;
    }

    private static void addHandlers(Params config, Properties properties) {
        if (config.has("deserialization_handler")) {
            properties.put(
                StreamsConfig.DESERIALIZATION_EXCEPTION_HANDLER_CLASS_CONFIG,
                config.text("deserialization_handler").equals(CONTINUE)
                    ? LogAndContinueExceptionHandler.class
                    : LogAndFailExceptionHandler.class);
        }
        if (config.has("processing_handler")) {
            properties.put(
                StreamsConfig.PROCESSING_EXCEPTION_HANDLER_CLASS_CONFIG,
                config.text("processing_handler").equals(CONTINUE)
                    ? LogAndContinueProcessingExceptionHandler.class
                    : LogAndFailProcessingExceptionHandler.class);
        }
        if (config.text("production_handler", "").equals(CONTINUE)) {
            properties.put(StreamsConfig.PRODUCTION_EXCEPTION_HANDLER_CLASS_CONFIG, ContinueProduction.class);
        }
    }

    /** Gives up every record that cannot be written; the library has no such handler of its own. */
    public static final class ContinueProduction implements ProductionExceptionHandler {

        @Override
        public Response handleError(ErrorHandlerContext context, ProducerRecord<byte[], byte[]> record, Exception error) {
            return Response.resume();
        }

        @Override
        @SuppressWarnings("rawtypes")
        public Response handleSerializationError(
            ErrorHandlerContext context, ProducerRecord record, Exception error, SerializationExceptionOrigin origin
        ) {
            return Response.resume();
        }

        @Override
        public void configure(Map<String, ?> configs) { }
    }
}
