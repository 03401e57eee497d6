"""Test a topology in milliseconds: the production task, fed from a list."""

from headrace.errors import EmptyTopicError
from headrace.metrics import MetricName
from headrace.testing.driver import TopologyTestDriver
from headrace.testing.driver_factory import DriverFactory
from headrace.testing.embedded import EmbeddedTopics
from headrace.testing.mock_context import CapturedForward, CapturedPunctuator, MockProcessorContext
from headrace.testing.topics import TestInputTopic, TestOutputTopic

__all__ = [
    "CapturedForward",
    "CapturedPunctuator",
    "DriverFactory",
    "EmbeddedTopics",
    "EmptyTopicError",
    "MetricName",
    "MockProcessorContext",
    "TestInputTopic",
    "TestOutputTopic",
    "TopologyTestDriver",
]
