"""Ask a browser for a captcha after five actions, unless it has passed one: a global table."""

from __future__ import annotations

from headrace import KafkaStreams, StreamsBuilder


def unless_verified(count: int, passed: int | None) -> int:
    return count if passed is None else 0


builder = StreamsBuilder()
verified = builder.global_table("captcha-verified", key=str, value=int)
(
    builder.stream("browser-actions", key=str, value=dict)
    .group_by(lambda _, event: event["browserHash"], key=str)
    .count(materialized="browser-actions")
    .to_stream()
    .left_join(verified, unless_verified, on=lambda browser, _: browser)
    .filter(lambda _, count: count >= 5)
    .to("ask-captcha")
)

app = KafkaStreams(builder.build(), application_id="captcha")

if __name__ == "__main__":
    raise SystemExit(app.run())
