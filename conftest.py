"""Loads Headrace's own pytest plugin here, where coverage already runs and sees its imports."""

pytest_plugins = ["headrace.testing.pytest_plugin"]
