package io.headrace.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.streams.TopologyTestDriver;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.Comparator;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Stream;

/** Runs one scenario with the real library and tells what it did. */
final class Recorder {

    /** The version of the library that is recorded. */
    static final String VERSION = AppInfoParser.getVersion();

    /** The golden of a scenario. */
    JsonNode record(JsonNode scenario) throws IOException {
        Path directory = Files.createTempDirectory("headrace-conformance");
        try {
            return record(new Params(scenario), directory);
        } finally {
            delete(directory);
        }
    }

    private static ObjectNode record(Params scenario, Path directory) {
        ObjectNode golden = Json.MAPPER.createObjectNode()
            .put("why", scenario.text("why", ""))
            .put("library", "kafka-streams " + VERSION);
        Effects effects = new Effects(directory);
        Properties config = Settings.of(scenario.params("config"), directory);
        Instant clock = Instant.ofEpochMilli(scenario.params("config").number("wall_clock", 0));
        Program program;
        TopologyTestDriver driver;
        try {
            program = scenario.has("topology")
                ? new ProcessorTopologyFactory(scenario, config).build()
                : new DslFactory(scenario, config, effects).build();
            driver = new TopologyTestDriver(program.topology, config, clock);
        } catch (RuntimeException error) {
            ScenarioError.rethrow(error);
            golden.set("build_error", Failure.toJson(error));
            return golden;
        }
        Set<String> produced;
        try (Run run = new Run(scenario, program, driver)) {
            golden.set("steps", run.steps());
            golden.set("topics", run.topics());
            golden.set("stores", run.stores());
            run.addDropped(golden);
            produced = driver.producedTopicNames();
        }
        ObjectNode seen = effects.toJson();
        if (!seen.isEmpty()) {
            golden.set("effects", seen);
        }
        golden.set("names", Names.of(program.topology, produced));
        golden.set("describe", Names.describe(program.topology));
        return golden;
    }

    private static void delete(Path directory) {
        try (Stream<Path> files = Files.walk(directory)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
