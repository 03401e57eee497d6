"""Python imports this when it starts, in every process of an application under test."""

from chaos.patching import install

install()
