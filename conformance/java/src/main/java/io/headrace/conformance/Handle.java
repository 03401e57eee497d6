package io.headrace.conformance;

/**
 * What an operation gives to the next: an object of the DSL with the names of its serdes.
 *
 * @param dsl a KStream, KTable, KGroupedStream, …
 * @param resultKey the key serde of what a windowed aggregation of it makes; otherwise {@code key}
 */
record Handle(Object dsl, String key, String value, String resultKey) {

    Handle(Object dsl, String key, String value) {
        this(dsl, key, value, key);
    }

    Handle with(Object next) {
        return new Handle(next, key, value, resultKey);
    }
}
