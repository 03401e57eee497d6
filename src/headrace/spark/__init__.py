"""The production runtime: topologies run by Spark."""
