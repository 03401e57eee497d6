package io.headrace.conformance;

import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.kstream.SessionWindowedDeserializer;
import org.apache.kafka.streams.kstream.SessionWindowedSerializer;
import org.apache.kafka.streams.kstream.TimeWindowedDeserializer;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** The serdes a scenario names: string, long, double, bytes, json, picky, windowed:KEY:SIZE, session:KEY. */
@SuppressWarnings({"unchecked", "rawtypes"})
final class ScenarioSerdes {

    private static final String WINDOWED = "windowed:";
    private static final String SESSION = "session:";

    private ScenarioSerdes() { }

    static Serde<Object> of(String name) {
        if (name.startsWith(WINDOWED)) {
            int colon = name.lastIndexOf(':');
            Serde<Object> inner = of(name.substring(WINDOWED.length(), colon));
            long size = Long.parseLong(name.substring(colon + 1));
            return (Serde) Serdes.serdeFrom(
                new TimeWindowedSerializer<>(inner.serializer()), new TimeWindowedDeserializer<>(inner.deserializer(), size));
        }
        if (name.startsWith(SESSION)) {
            Serde<Object> inner = of(name.substring(SESSION.length()));
            return (Serde) Serdes.serdeFrom(
                new SessionWindowedSerializer<>(inner.serializer()), new SessionWindowedDeserializer<>(inner.deserializer()));
        }
        switch (name) {
            case "string": return (Serde) Serdes.String();
            case "long": return (Serde) Serdes.Long();
            case "double": return (Serde) Serdes.Double();
            case "bytes": return serde(text -> HexFormat.of().parseHex((String) text), HexFormat.of()::formatHex);
            case "json": return serde(ScenarioSerdes::writeJson, ScenarioSerdes::readJson);
            case "picky": return serde(ScenarioSerdes::writePicky, bytes -> new String(bytes, StandardCharsets.UTF_8));
            default: throw new ScenarioError("Unknown serde: " + name);
        }
    }

    static String timeWindowed(String key, long size) {
        return WINDOWED + key + ":" + size;
    }

    static String sessionWindowed(String key) {
        return SESSION + key;
    }

    /** A value as the scenario writes it, as the serde wants it: {@code 1} is a double where doubles are meant. */
    static Object fitting(String serde, Object value) {
        return serde.equals("double") && value instanceof Long number ? (Object) number.doubleValue() : value;
    }

    private interface Writer {
        byte[] write(Object value);
    }

    private interface Reader {
        Object read(byte[] bytes);
    }

    private static Serde<Object> serde(Writer writer, Reader reader) {
        Serializer<Object> serializer = (topic, value) -> value == null ? null : writer.write(value);
        Deserializer<Object> deserializer = (topic, bytes) -> bytes == null ? null : reader.read(bytes);
        return Serdes.serdeFrom(serializer, deserializer);
    }

    private static byte[] writeJson(Object value) {
        return Json.compact(Values.toJson(value)).getBytes(StandardCharsets.UTF_8);
    }

    private static Object readJson(byte[] bytes) {
        try {
            return Values.fromJson(Json.MAPPER.readTree(bytes));
        } catch (IOException error) {
            throw new SerializationException("not JSON", error);
        }
    }

    private static byte[] writePicky(Object value) {
        if (value.equals("bad")) {
            throw new SerializationException("refused");
        }
        return ((String) value).getBytes(StandardCharsets.UTF_8);
    }
}
