package io.headrace.conformance;

/** What the functions {@code fail} and {@code fail_if} throw: an exception of the user's own code. */
final class UserError extends RuntimeException {

    UserError(String message) {
        super(message);
    }
}
