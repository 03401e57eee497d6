package io.headrace.conformance;

import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The command line: record, check, stream, serdes. */
public final class Main {

    private static final String USAGE = String.join("\n",
        "record --scenarios DIR --goldens DIR [NAME…]   write the goldens of all or some scenarios",
        "check  --scenarios DIR --goldens DIR [NAME…]   compare with the goldens there are; 1 if any differs",
        "stream [--in FILE]                             scenarios as JSON lines in, goldens as JSON lines out",
        "serdes --out FILE                              write the bytes of Java's serdes and murmur2");

    private final Map<String, String> options = new HashMap<>();
    private final List<String> names = new ArrayList<>();
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private Main() { }

    public static void main(String[] arguments) throws IOException {
        int status = new Main().run(arguments);
        System.exit(status);
    }

    private int run(String[] arguments) throws IOException {
        String command = arguments.length == 0 ? "" : arguments[0];
        readOptions(arguments);
        try {
            switch (command) {
                case "record": return record();
                case "check": return check();
                case "stream": return stream();
                case "serdes": return serdes();
                default: throw new IllegalArgumentException("What shall I do?");
            }
        } catch (IllegalArgumentException mistake) {
            System.err.println(mistake.getMessage() + "\n" + USAGE);
            return 2;
        } catch (ScenarioError mistake) {
            System.err.println(mistake.getMessage());
            return 2;
        } finally {
            out.flush();
        }
    }

    private void readOptions(String[] arguments) {
        for (int i = 1; i < arguments.length; i++) {
            if (arguments[i].startsWith("--") && i + 1 < arguments.length) {
                options.put(arguments[i].substring(2), arguments[++i]);
            } else {
                names.add(arguments[i]);
            }
        }
    }

    private Path path(String option) {
        if (!options.containsKey(option)) {
            throw new IllegalArgumentException("--" + option + " is missing.");
        }
        return Path.of(options.get(option));
    }

    private Suite suite() {
        return new Suite(path("scenarios"), path("goldens"), names);
    }

    private int record() throws IOException {
        out.println(suite().record() + " goldens recorded");
        return 0;
    }

    private int check() throws IOException {
        Suite suite = suite();
        List<String> report = suite.check();
        report.forEach(out::println);
        out.println(suite.size() + " scenarios, " + report.size() + " differ");
        return report.isEmpty() ? 0 : 1;
    }

    private int stream() throws IOException {
        try (BufferedReader lines = options.containsKey("in")
            ? Files.newBufferedReader(path("in"))
            : new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (!line.isBlank()) {
                    out.println(golden(line));
                    out.flush();
                }
            }
        }
        return 0;
    }

    /** One line for one line, whatever happens: a scenario that cannot be run gives {"failed": …}. */
    private static String golden(String line) {
        try {
            return Json.compact(new Recorder().record(Json.parse(line)));
        } catch (IOException | RuntimeException | Error failure) {
            ObjectNode failed = Json.MAPPER.createObjectNode();
            failed.set("failed", Failure.toJson(failure));
            return Json.compact(failed);
        }
    }

    private int serdes() throws IOException {
        Files.writeString(path("out"), Json.pretty(new SerdeRecorder().record()));
        return 0;
    }
}
