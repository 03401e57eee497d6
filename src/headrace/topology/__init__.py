"""The graph that the DSL and the engine share."""
