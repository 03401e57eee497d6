package io.headrace.benchmarks;

import io.headrace.benchmarks.Model.Delivery;
import io.headrace.benchmarks.Model.Location;
import io.headrace.benchmarks.Model.Order;
import io.headrace.benchmarks.Model.Receipt;
import io.headrace.benchmarks.Model.Totals;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** The programs of benchmarks/apps, in Java. */
final class Workloads {
    private static final Duration SIZE = Duration.ofMinutes(1);
    private static final Duration GRACE = Duration.ofSeconds(10);

    private static final Serde<String> KEY = Serdes.String();
    private static final Serde<Order> ORDER = new JsonSerde<>(Order.class);
    private static final Serde<Totals> TOTALS = new JsonSerde<>(Totals.class);
    private static final Serde<Receipt> RECEIPT = new JsonSerde<>(Receipt.class);
    private static final Serde<Location> LOCATION = new JsonSerde<>(Location.class);
    private static final Serde<Delivery> DELIVERY = new JsonSerde<>(Delivery.class);

    private Workloads() {}

    static StreamsBuilder build(String workload, String source, String table, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, Order> orders = builder.stream(source, Consumed.with(KEY, ORDER));
        switch (workload) {
            case "running_totals" -> runningTotals(orders, output);
            case "windowed_totals" -> windowedTotals(orders, output);
            case "filter_map" -> filterMap(orders, output);
            case "rekeyed_totals" -> rekeyedTotals(orders, output);
            case "stream_table_join" ->
                streamTableJoin(orders, builder.table(table, Consumed.with(KEY, LOCATION)), output);
            default -> throw new IllegalArgumentException("There is no workload " + workload + ".");
        }
        return builder;
    }

    private static void runningTotals(KStream<String, Order> orders, String output) {
        orders.groupByKey(Grouped.with(KEY, ORDER))
            .aggregate(Totals::new, (key, order, totals) -> totals.adding(order), Materialized.with(KEY, TOTALS))
            .toStream()
            .to(output, Produced.with(KEY, TOTALS));
    }

    private static void windowedTotals(KStream<String, Order> orders, String output) {
        orders.groupByKey(Grouped.with(KEY, ORDER))
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
            .aggregate(Totals::new, (key, order, totals) -> totals.adding(order), Materialized.with(KEY, TOTALS))
            .toStream()
            .to(output, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, SIZE.toMillis()), TOTALS));
    }

    private static void filterMap(KStream<String, Order> orders, String output) {
        orders.filter((key, order) -> order.orderType.equals("GENERAL"))
            .mapValues(Receipt::of)
            .to(output, Produced.with(KEY, RECEIPT));
    }

    private static void rekeyedTotals(KStream<String, Order> orders, String output) {
        orders.groupBy((key, order) -> order.customerId, Grouped.with(KEY, ORDER))
            .aggregate(Totals::new, (key, order, totals) -> totals.adding(order), Materialized.with(KEY, TOTALS))
            .toStream()
            .to(output, Produced.with(KEY, TOTALS));
    }

    private static void streamTableJoin(
            KStream<String, Order> orders, KTable<String, Location> locations, String output) {
        orders.join(locations, Delivery::of, Joined.with(KEY, ORDER, LOCATION))
            .to(output, Produced.with(KEY, DELIVERY));
    }
}
