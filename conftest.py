"""Loads the plugins of these tests, and Headrace's own one, whose imports coverage sees here."""

pytest_plugins = [
    "headrace.testing.pytest_plugin",
    "tests.progress",
    "tests.tiers",
    "tests.time_limits",
]
