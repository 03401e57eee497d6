package io.headrace.benchmarks;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serializer;

/** Jackson, with a reader and a writer made once per type. */
final class JsonSerde<T> implements Serde<T> {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private final ObjectReader reader;
    private final ObjectWriter writer;

    JsonSerde(Class<T> type) {
        reader = MAPPER.readerFor(type);
        writer = MAPPER.writerFor(type);
    }

    @Override
    public Serializer<T> serializer() {
        return (topic, value) -> {
            try {
                return value == null ? null : writer.writeValueAsBytes(value);
            } catch (JsonProcessingException error) {
                throw new SerializationException(error);
            }
        };
    }

    @Override
    public Deserializer<T> deserializer() {
        return (topic, data) -> {
            try {
                return data == null ? null : reader.readValue(data);
            } catch (IOException error) {
                throw new SerializationException(error);
            }
        };
    }
}
