package io.headrace.conformance;

import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;

import java.time.Duration;
import java.time.Instant;

/** Windows as scenarios describe them. */
final class Windows {

    private Windows() { }

    static TimeWindows time(Params window) {
        TimeWindows windows = TimeWindows.ofSizeAndGrace(window.duration("size"), grace(window));
        return window.has("advance") ? windows.advanceBy(window.duration("advance")) : windows;
    }

    static SlidingWindows sliding(Params window) {
        return SlidingWindows.ofTimeDifferenceAndGrace(window.duration("difference"), grace(window));
    }

    static SessionWindows session(Params window) {
        return SessionWindows.ofInactivityGapAndGrace(window.duration("gap"), grace(window));
    }

    static UnlimitedWindows unlimited(Params window) {
        return UnlimitedWindows.of().startOn(Instant.ofEpochMilli(window.number("start", 0)));
    }

    static JoinWindows join(Params window) {
        if (window.has("difference")) {
            return JoinWindows.ofTimeDifferenceAndGrace(window.duration("difference"), grace(window));
        }
        long before = window.number("before");
        long after = window.number("after");
        long wide = Math.max(Math.abs(before), Math.abs(after));
        return JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(wide), grace(window))
            .before(Duration.ofMillis(before))
            .after(Duration.ofMillis(after));
    }

    private static Duration grace(Params window) {
        return Duration.ofMillis(window.number("grace", 0));
    }
}
