package io.headrace.benchmarks;

import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * Runs one workload until standard input ends, and prints when what happened, in milliseconds since
 * the JVM started, as one line of JSON.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 8) {
            System.err.println(
                "Usage: WORKLOAD BOOTSTRAP APPLICATION_ID STATE_DIR GUARANTEE SOURCE TABLE OUTPUT");
            System.exit(2);
        }
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[2]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[4]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");

        var builder = Workloads.build(arguments[0], arguments[5], arguments[6], arguments[7]);
        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings);
        long[] running = {-1};
        streams.setStateListener((state, before) -> {
            if (state == KafkaStreams.State.RUNNING && running[0] < 0) {
                running[0] = sinceStart();
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
        });
        long started = sinceStart();
        streams.start();
        while (System.in.read() >= 0) {
            continue;
        }
        streams.close(Duration.ofSeconds(30));
        System.out.printf("{\"started_ms\": %d, \"running_ms\": %d}%n", started, running[0]);
    }

    private static long sinceStart() {
        return System.currentTimeMillis() - ManagementFactory.getRuntimeMXBean().getStartTime();
    }
}
