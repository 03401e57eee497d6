package io.headrace.conformance;

/** A scenario that makes no sense: never part of a golden, whatever Kafka wraps around it. */
final class ScenarioError extends RuntimeException {

    ScenarioError(String message) {
        super(message);
    }

    /** Throws the scenario error that is among the causes of {@code error}, if there is one. */
    static void rethrow(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ScenarioError mistake) {
                throw mistake;
            }
        }
    }
}
