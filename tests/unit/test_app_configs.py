"""Settings of the program itself and of its serdes."""

from __future__ import annotations

import pytest

from headrace import ConfigError, StreamsConfig

JAVA_PROPERTIES = {
    "application.id": "orders",
    "schema.registry.url": "http://registry:8081",
    "input.topic.name": "orders-in",
    "input.topic.partitions": 6,
    "my_flag": True,
    "basic.auth.user.info": "me:CANARY",
}


def test_names_of_the_application_itself_are_kept_as_text() -> None:
    config = StreamsConfig.from_properties(JAVA_PROPERTIES)

    assert config.application_id == "orders"
    assert config.app_configs == {
        "schema.registry.url": "http://registry:8081",
        "input.topic.name": "orders-in",
        "input.topic.partitions": "6",
        "my_flag": "true",
        "basic.auth.user.info": "me:CANARY",
    }
    assert config.properties()["schema.registry.url"] == "http://registry:8081"
    assert "CANARY" not in f"{config} {config.app_configs} {config.properties()}"
    assert StreamsConfig.from_properties(config.properties()) == config


def test_names_of_the_application_itself_can_be_a_keyword() -> None:
    config = StreamsConfig(app_configs={"input.topic.name": "a", "x": 1})

    assert config == StreamsConfig.from_properties({"input.topic.name": "a", "x": "1"})
    with pytest.raises(ConfigError) as caught:
        StreamsConfig(app_configs={"trigger": "1s", "linger.ms": 5})
    assert caught.value.problems == [
        "`app_configs` has the name 'trigger', which is a setting of its own. "
        "Write it outside `app_configs`.",
        "`app_configs` has the name 'linger.ms', which is a setting of its own. "
        "Write it outside `app_configs`.",
    ]


@pytest.mark.parametrize("name", ["input topic", "\x80\x04cos", "a=b", ""])
def test_a_name_of_other_characters_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.from_properties({name: "1"})

    assert caught.value.problems == [
        f"{name!r} is not the name of a setting. "
        "Use letters, digits, dots, hyphens and underscores."
    ]
