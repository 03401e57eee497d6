"""A topology as a picture: Mermaid, Graphviz, or SVG without any program to draw it."""

from headrace.topology.pictures.graphviz import graphviz_from
from headrace.topology.pictures.mermaid import mermaid_from
from headrace.topology.pictures.origins import origins_of
from headrace.topology.pictures.picture import Picture, picture_from
from headrace.topology.pictures.svg import svg_from

__all__ = ["Picture", "graphviz_from", "mermaid_from", "origins_of", "picture_from", "svg_from"]
