package io.headrace.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.kstream.SessionWindowedSerializer;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.kstream.internals.TimeWindow;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;

/** The bytes that Java's serdes write, and the hash the producer partitions by. */
final class SerdeRecorder {

    private static final String TOPIC = "topic";
    private static final String UUID_ONE = "123e4567-e89b-12d3-a456-426614174000";
    private static final String UUID_MAX = "ffffffff-ffff-ffff-ffff-ffffffffffff";
    private static final String UUID_ZERO = "00000000-0000-0000-0000-000000000000";
    private static final int[] PARTITIONS = {1, 2, 3, 5, 7, 10, 12, 100, 1000};

    private final ArrayNode serdes = Json.MAPPER.createArrayNode();

    /** {"serdes": […], "murmur2": […]}. */
    JsonNode record() {
        recordPrimitives();
        recordLists();
        recordWindowedKeys();
        ObjectNode golden = Json.MAPPER.createObjectNode();
        golden.put("library", "kafka-clients " + Recorder.VERSION);
        golden.set("serdes", serdes);
        golden.set("murmur2", murmur2());
        return golden;
    }

    private void recordPrimitives() {
        values("string", Serdes.String(), "", "a", "hello world", "é", "straße", "日本語", "😀 emoji", "e\u0301 combining",
            "\u0000", "tab\tnewline\n", "\"quoted\\\"", "\u007f\u0080\u07ff\u0800\uffff", null);
        values("short", Serdes.Short(), (short) 0, (short) 1, (short) -1, (short) 258, Short.MAX_VALUE, Short.MIN_VALUE, null);
        values("integer", Serdes.Integer(), 0, 1, -1, 258, 16909060, Integer.MAX_VALUE, Integer.MIN_VALUE, null);
        values("long", Serdes.Long(), 0L, 1L, -1L, 258L, 72623859790382856L, 1L << 53, Long.MAX_VALUE, Long.MIN_VALUE, null);
        values("float", Serdes.Float(), 0.0f, -0.0f, 1.0f, -1.5f, 0.1f, 3.1415927f, 1.0e10f, Float.MAX_VALUE, Float.MIN_VALUE,
            Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY, null);
        values("double", Serdes.Double(), 0.0, -0.0, 1.0, -1.5, 0.1, Math.PI, 1.0e100, Double.MAX_VALUE, Double.MIN_VALUE,
            Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, null);
        values("boolean", Serdes.Boolean(), true, false, null);
        values("uuid", Serdes.UUID(), UUID.fromString(UUID_ONE), UUID.fromString(UUID_ZERO), UUID.fromString(UUID_MAX), null);
        values("void", Serdes.Void(), (Void) null);
        values("bytes", Serdes.Bytes(), wrapped(""), wrapped("00"), wrapped("0102feff"), null);
        values("byte_array", Serdes.ByteArray(), bytes(""), bytes("00"), bytes("0102feff"), null);
        values("byte_buffer", Serdes.ByteBuffer(), ByteBuffer.wrap(bytes("")), ByteBuffer.wrap(bytes("0102feff")), null);
    }

    @SafeVarargs
    private <T> void values(String name, Serde<T> serde, T... values) {
        for (T value : values) {
            ObjectNode entry = serdes.addObject().put("serde", name);
            entry.set("value", plain(value));
            entry.put("hex", hex(serde.serializer().serialize(TOPIC, value)));
        }
    }

    private void recordLists() {
        lists("short", Serdes.Short(), "constant", List.of(List.of(), List.of((short) 1, (short) -1), withNulls((short) 7)));
        lists("integer", Serdes.Integer(), "constant", List.of(List.of(), List.of(1), List.of(1, -1, 258), withNulls(7)));
        lists("long", Serdes.Long(), "constant", List.of(List.of(), List.of(1L), List.of(1L, -1L, 1L << 40), withNulls(7L)));
        lists("float", Serdes.Float(), "constant", List.of(List.of(1.5f, -0.25f), withNulls(2.5f)));
        lists("double", Serdes.Double(), "constant", List.of(List.of(1.5, -0.25), withNulls(2.5)));
        UUID uuid = UUID.fromString(UUID_ONE);
        lists("uuid", Serdes.UUID(), "constant", List.of(List.of(), List.of(uuid, UUID.fromString(UUID_MAX)), withNulls(uuid)));
        lists("string", Serdes.String(), "variable", List.of(List.of(), List.of(""), List.of("a", "", "日本語"), withNulls("x")));
        lists("bytes", Serdes.Bytes(), "variable", List.of(List.of(wrapped("0102"), wrapped("")), withNulls(wrapped("ff"))));
        lists("boolean", Serdes.Boolean(), "variable", List.of(List.of(true, false), withNulls(true)));
    }

    private static <T> List<T> withNulls(T item) {
        return new ArrayList<>(Arrays.asList(null, item, null, item));
    }

    private <T> void lists(String inner, Serde<T> serde, String strategy, List<List<T>> lists) {
        Serde<List<T>> listSerde = Serdes.ListSerde(ArrayList.class, serde);
        List<List<T>> all = new ArrayList<>(lists);
        all.add(new ArrayList<>(Arrays.asList((T) null)));
        all.add(null);
        for (List<T> list : all) {
            ObjectNode entry = serdes.addObject().put("serde", "list").put("inner", inner).put("strategy", strategy);
            entry.set("value", list == null ? Json.MAPPER.nullNode() : items(list));
            entry.put("hex", hex(listSerde.serializer().serialize(TOPIC, list)));
        }
    }

    private static JsonNode items(List<?> list) {
        ArrayNode items = Json.MAPPER.createArrayNode();
        list.forEach(item -> items.add(plain(item)));
        return items;
    }

    private void recordWindowedKeys() {
        for (String key : List.of("a", "", "é", "long key")) {
            timeWindow("string", key, Serdes.String(), 5, 10);
            timeWindow("string", key, Serdes.String(), 1_700_000_000_000L, 60_000);
            session("string", key, Serdes.String(), 5, 15);
            session("string", key, Serdes.String(), 7, 7);
        }
        timeWindow("long", 1L, Serdes.Long(), 0, 1);
        timeWindow("long", -1L, Serdes.Long(), 1L << 40, 100);
        session("long", 1L, Serdes.Long(), 0, 0);
        session("long", -1L, Serdes.Long(), 1L << 40, 1L << 41);
    }

    private <T> void timeWindow(String inner, T key, Serde<T> serde, long start, long size) {
        Windowed<T> windowed = new Windowed<>(key, new TimeWindow(start, start + size));
        try (TimeWindowedSerializer<T> serializer = new TimeWindowedSerializer<>(serde.serializer())) {
            ObjectNode entry = serdes.addObject().put("serde", "time_windowed").put("inner", inner).put("size", size);
            entry.set("value", windowedKey(windowed));
            entry.put("hex", hex(serializer.serialize(TOPIC, windowed)));
        }
    }

    private <T> void session(String inner, T key, Serde<T> serde, long start, long end) {
        Windowed<T> windowed = new Windowed<>(key, new SessionWindow(start, end));
        try (SessionWindowedSerializer<T> serializer = new SessionWindowedSerializer<>(serde.serializer())) {
            ObjectNode entry = serdes.addObject().put("serde", "session_windowed").put("inner", inner);
            entry.set("value", windowedKey(windowed));
            entry.put("hex", hex(serializer.serialize(TOPIC, windowed)));
        }
    }

    private static JsonNode windowedKey(Windowed<?> windowed) {
        ObjectNode value = Json.MAPPER.createObjectNode();
        value.set("key", plain(windowed.key()));
        return value.put("start", windowed.window().start()).put("end", windowed.window().end());
    }

    private static ArrayNode murmur2() {
        List<byte[]> keys = new ArrayList<>();
        for (String text : List.of("", "a", "ab", "abc", "abcd", "abcde", "21", "foobar", "a-little-bit-long-string",
            "a-little-bit-longer-string", "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", "日本語", "😀", "straße")) {
            keys.add(text.getBytes(StandardCharsets.UTF_8));
        }
        for (String hex : List.of("00", "0000", "000000", "00000000", "ff", "ffff", "ffffff", "ffffffff", "80808080ff", "0000000000000001",
            "ffffffffffffffff", "000102030405060708090a0b0c0d0e0f", "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00")) {
            keys.add(bytes(hex));
        }
        for (int i = 0; i < 40; i++) {
            keys.add(("key-" + i * i * i).getBytes(StandardCharsets.UTF_8));
        }
        ArrayNode hashes = Json.MAPPER.createArrayNode();
        for (byte[] key : keys) {
            ObjectNode entry = hashes.addObject().put("hex", hex(key)).put("hash", Utils.murmur2(key));
            ObjectNode partitions = entry.putObject("partitions");
            for (int count : PARTITIONS) {
                partitions.put(String.valueOf(count), BuiltInPartitioner.partitionForKey(key, count));
            }
        }
        return hashes;
    }

    /** A value as JSON; doubles that JSON lacks, and -0.0, as text, bytes as hex. */
    private static JsonNode plain(Object value) {
        if (value instanceof UUID) {
            return Json.MAPPER.getNodeFactory().textNode(value.toString());
        }
        if (value instanceof Bytes bytes) {
            return Json.MAPPER.getNodeFactory().textNode(hex(bytes.get()));
        }
        if (value instanceof byte[] array) {
            return Json.MAPPER.getNodeFactory().textNode(hex(array));
        }
        if (value instanceof ByteBuffer buffer) {
            return Json.MAPPER.getNodeFactory().textNode(hex(buffer.array()));
        }
        if (value instanceof Float || value instanceof Double) {
            double number = ((Number) value).doubleValue();
            boolean odd = Double.isNaN(number) || Double.isInfinite(number) || 1 / number == Double.NEGATIVE_INFINITY;
            if (odd) {
                return Json.MAPPER.getNodeFactory().textNode(value.toString());
            }
        }
        return Json.MAPPER.valueToTree(value);
    }

    private static Bytes wrapped(String hex) {
        return Bytes.wrap(bytes(hex));
    }

    private static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }
}
