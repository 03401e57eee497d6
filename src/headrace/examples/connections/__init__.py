"""Connections that are spread over the nodes that are alive."""
