package io.headrace.benchmarks;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.HostInfo;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Answers reads of a table over HTTP until standard input ends: Kafka Streams' interactive queries,
 * with the remote calls that its documentation leaves to the user.
 *
 * <p>A key is read where its partition is active. If that instance does not answer, its standby
 * copies are read, which may be older.
 */
public final class Queries {
    private static final String STORE = "totals";
    private static final Duration CONNECT = Duration.ofMillis(200);
    private static final Duration ANSWER = Duration.ofSeconds(1);
    private static final int THREADS = 8;

    private final KafkaStreams streams;
    private final HostInfo self;
    private final HttpClient client = HttpClient.newBuilder().connectTimeout(CONNECT).build();
    private final Map<Integer, ReadOnlyKeyValueStore<String, byte[]>> stores =
        new ConcurrentHashMap<>();
    private final StringSerializer serializer = new StringSerializer();

    private Queries(KafkaStreams streams, HostInfo self) {
        this.streams = streams;
        this.self = self;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 6) {
            System.err.println("Usage: BOOTSTRAP APPLICATION_ID STATE_DIR SOURCE SERVER STANDBYS");
            System.exit(2);
        }
        HostInfo self = HostInfo.buildFromEndpoint(arguments[4]);
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.APPLICATION_SERVER_CONFIG, arguments[4]);
        settings.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, arguments[5]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");

        StreamsBuilder builder = new StreamsBuilder();
        builder.table(
            arguments[3],
            Consumed.with(Serdes.String(), Serdes.ByteArray()),
            Materialized.as(STORE));
        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings);
        Queries queries = new Queries(streams, self);
        HttpServer server = HttpServer.create(new InetSocketAddress(self.host(), self.port()), 1024);
        server.setExecutor(Executors.newFixedThreadPool(THREADS));
        server.createContext("/keys/", exchange -> queries.answer(exchange, true));
        server.createContext("/local/", exchange -> queries.answer(exchange, false));
        server.createContext("/status", queries::status);
        streams.start();
        server.start();
        while (System.in.read() >= 0) {
            continue;
        }
        server.stop(0);
        streams.close(Duration.ofSeconds(30));
        System.exit(0);
    }

    private void answer(HttpExchange exchange, boolean mayForward) throws IOException {
        String path = exchange.getRequestURI().getPath();
        String key = path.substring(path.indexOf('/', 1) + 1);
        byte[] value = null;
        int status = 200;
        try {
            KeyQueryMetadata metadata = streams.queryMetadataForKey(STORE, key, serializer);
            value = mayForward ? read(metadata, key) : readHere(metadata.partition(), key);
            if (value == null) {
                status = 404;
            }
        } catch (InvalidStateStoreException | IllegalStateException | IOException error) {
            status = 503;
        }
        send(exchange, status, value == null ? new byte[0] : value);
    }

    private byte[] read(KeyQueryMetadata metadata, String key) throws IOException {
        List<HostInfo> order = new ArrayList<>();
        order.add(metadata.activeHost());
        order.addAll(metadata.standbyHosts());
        IOException last = new IOException("No instance has the key.");
        for (HostInfo host : order) {
            try {
                return host.equals(self) ? readHere(metadata.partition(), key) : ask(host, key);
            } catch (InvalidStateStoreException | IOException error) {
                last = new IOException(error);
            }
        }
        throw last;
    }

    private byte[] readHere(int partition, String key) {
        return stores.computeIfAbsent(partition, this::open).get(key);
    }

    private ReadOnlyKeyValueStore<String, byte[]> open(int partition) {
        return streams.store(
            StoreQueryParameters.fromNameAndType(
                    STORE, QueryableStoreTypes.<String, byte[]>keyValueStore())
                .withPartition(partition)
                .enableStaleStores());
    }

    private byte[] ask(HostInfo host, String key) throws IOException {
        URI address = URI.create("http://" + host.host() + ":" + host.port() + "/local/" + key);
        HttpRequest request = HttpRequest.newBuilder(address).timeout(ANSWER).build();
        try {
            var answer = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            if (answer.statusCode() == 200) {
                return answer.body();
            }
            throw new IOException("Status " + answer.statusCode());
        } catch (InterruptedException error) {
            throw new IOException(error);
        }
    }

    private void status(HttpExchange exchange) throws IOException {
        int active = 0;
        int standby = 0;
        for (var thread : streams.metadataForLocalThreads()) {
            active += thread.activeTasks().size();
            standby += thread.standbyTasks().size();
        }
        boolean isReady = streams.state() == KafkaStreams.State.RUNNING;
        String text =
            String.format(
                "{\"is_ready\": %b, \"active\": %d, \"standby\": %d}", isReady, active, standby);
        send(exchange, 200, text.getBytes(StandardCharsets.UTF_8));
    }

    private static void send(HttpExchange exchange, int status, byte[] body) throws IOException {
        exchange.getResponseHeaders().add("Content-Type", "application/json");
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        try (var output = exchange.getResponseBody()) {
            output.write(body);
        }
    }
}
