"""Instances that keep copies of an application's stores and answer queries at one snapshot."""
