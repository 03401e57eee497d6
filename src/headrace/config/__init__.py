"""StreamsConfig: the settings of an application, typed, under Kafka's names."""

from headrace.config.catalogue import HeadraceName, KafkaName, Setting
from headrace.config.masking import MaskedSettings
from headrace.config.reference import SettingDescription, describe_settings, settings_reference
from headrace.config.settings import Settings
from headrace.config.streams_config import StreamsConfig, catalogue, merged

__all__ = [
    "HeadraceName",
    "KafkaName",
    "MaskedSettings",
    "Setting",
    "SettingDescription",
    "Settings",
    "StreamsConfig",
    "catalogue",
    "describe_settings",
    "merged",
    "settings_reference",
]
