package io.headrace.benchmarks;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;

/** What the records of the workloads hold; the fields have the names of the JSON. */
final class Model {
    private Model() {}

    @JsonIgnoreProperties(ignoreUnknown = true)
    static final class Order {
        @JsonProperty("order_id") public long orderId;
        @JsonProperty("location_id") public String locationId;
        @JsonProperty("customer_id") public String customerId;
        @JsonProperty("final_amount") public double finalAmount;
        @JsonProperty("order_type") public String orderType;
    }

    static final class Totals {
        public long orders;
        public double amount;

        Totals adding(Order order) {
            Totals sum = new Totals();
            sum.orders = orders + 1;
            sum.amount = amount + order.finalAmount;
            return sum;
        }
    }

    static final class Receipt {
        @JsonProperty("order_id") public long orderId;
        @JsonProperty("location_id") public String locationId;
        @JsonProperty("with_tax") public double withTax;

        static Receipt of(Order order) {
            Receipt receipt = new Receipt();
            receipt.orderId = order.orderId;
            receipt.locationId = order.locationId;
            receipt.withTax = order.finalAmount * 1.25;
            return receipt;
        }
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    static final class Location {
        public String name;
        public String city;
    }

    static final class Delivery {
        @JsonProperty("order_id") public long orderId;
        @JsonProperty("final_amount") public double finalAmount;
        public String city;

        static Delivery of(Order order, Location location) {
            Delivery delivery = new Delivery();
            delivery.orderId = order.orderId;
            delivery.finalAmount = order.finalAmount;
            delivery.city = location.city;
            return delivery;
        }
    }
}
