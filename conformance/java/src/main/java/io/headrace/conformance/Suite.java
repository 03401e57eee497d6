package io.headrace.conformance;

import com.fasterxml.jackson.databind.JsonNode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;

/** A folder of scenarios and the folder of their goldens. */
final class Suite {

    private static final String JSON = ".json";

    private final Path scenarios;
    private final Path goldens;
    private final List<String> wanted;

    /**
     * A suite of some scenarios.
     *
     * @param wanted names such as {@code windows/hopping} or of chapters such as {@code windows}; none means all
     */
    Suite(Path scenarios, Path goldens, List<String> wanted) {
        this.scenarios = scenarios;
        this.goldens = goldens;
        this.wanted = wanted;
    }

    /** Records every scenario and writes its golden; tells how many there were. */
    int record() throws IOException {
        Set<String> names = names(scenarios);
        for (String name : names) {
            Path golden = goldens.resolve(name + JSON);
            Files.createDirectories(golden.getParent());
            Files.writeString(golden, Json.pretty(recorded(name)));
        }
        return names.size();
    }

    /** Records every scenario and compares; the lines say what differs, none that nothing does. */
    List<String> check() throws IOException {
        List<String> report = new ArrayList<>();
        Set<String> names = names(scenarios);
        for (String name : names) {
            Path golden = goldens.resolve(name + JSON);
            if (!Files.exists(golden)) {
                report.add(name + "\n  has no golden");
                continue;
            }
            JsonNode committed = Json.parse(Files.readString(golden));
            List<String> differences = Differences.between(committed, Json.parse(Json.compact(recorded(name))));
            if (!differences.isEmpty()) {
                report.add(name + "\n    " + String.join("\n    ", differences));
            }
        }
        for (String name : names(goldens)) {
            if (name.contains("/") && !names.contains(name)) {
                report.add(name + "\n  is a golden without a scenario");
            }
        }
        return report;
    }

    int size() throws IOException {
        return names(scenarios).size();
    }

    private JsonNode recorded(String name) throws IOException {
        JsonNode scenario = Json.parse(Files.readString(scenarios.resolve(name + JSON)));
        if (!scenario.path("name").asText().equals(name)) {
            throw new ScenarioError("The scenario in " + name + JSON + " calls itself " + scenario.path("name"));
        }
        try {
            return new Recorder().record(scenario);
        } catch (ScenarioError mistake) {
            throw new ScenarioError(name + ": " + mistake.getMessage());
        }
    }

    private Set<String> names(Path folder) throws IOException {
        Set<String> names = new TreeSet<>();
        try (Stream<Path> files = Files.walk(folder)) {
            files.filter(file -> file.toString().endsWith(JSON)).forEach(file -> {
                String path = folder.relativize(file).toString().replace('\\', '/');
                names.add(path.substring(0, path.length() - JSON.length()));
            });
        }
        names.removeIf(name -> !isWanted(name));
        return names;
    }

    private boolean isWanted(String name) {
        return wanted.isEmpty() || wanted.stream().anyMatch(want -> name.equals(want) || name.startsWith(want + "/"));
    }
}
