package io.headrace.conformance;

import org.apache.kafka.streams.processor.FailOnInvalidTimestamp;
import org.apache.kafka.streams.processor.LogAndSkipOnInvalidTimestamp;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp;
import org.apache.kafka.streams.processor.WallclockTimestampExtractor;

import java.util.Map;

/** Timestamp extractors by name. */
final class Extractors {

    private static final String FIELD = "field:";

    private Extractors() { }

    static TimestampExtractor of(String name) {
        if (name.startsWith(FIELD)) {
            String field = name.substring(FIELD.length());
            return (record, partitionTime) ->
                record.value() == null ? partitionTime : Values.asLong(((Map<?, ?>) record.value()).get(field));
        }
        switch (name) {
            case "fail_on_invalid": return new FailOnInvalidTimestamp();
            case "log_and_skip": return new LogAndSkipOnInvalidTimestamp();
            case "use_partition_time": return new UsePartitionTimeOnInvalidTimestamp();
            case "wall_clock": return new WallclockTimestampExtractor();
            case "value": return (record, partitionTime) -> Values.asLong(record.value());
            case "partition_time_plus_one": return (record, partitionTime) -> partitionTime + 1;
            default: throw new ScenarioError("Unknown timestamp extractor: " + name);
        }
    }
}
