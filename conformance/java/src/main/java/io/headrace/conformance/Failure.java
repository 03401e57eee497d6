package io.headrace.conformance;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** An exception as a golden tells it: the classes from the outside in, and the first line of the innermost message. */
final class Failure {

    private static final int MESSAGE_LENGTH = 300;
    private static final String IDENTITY_HASH = "@[0-9a-f]{5,8}\\b";

    private Failure() { }

    static ObjectNode toJson(Throwable error) {
        ObjectNode failure = Json.MAPPER.createObjectNode().put("type", error.getClass().getSimpleName());
        ArrayNode causes = failure.putArray("causes");
        Throwable innermost = error;
        while (innermost.getCause() != null && innermost.getCause() != innermost) {
            innermost = innermost.getCause();
            causes.add(innermost.getClass().getSimpleName());
        }
        String line = String.valueOf(innermost.getMessage()).lines().findFirst().orElse("");
        String message = line.replaceAll(IDENTITY_HASH, "@…");
        return failure.put("message", message.substring(0, Math.min(message.length(), MESSAGE_LENGTH)));
    }
}
