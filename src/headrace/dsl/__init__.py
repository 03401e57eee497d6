"""The DSL: its methods add nodes to a topology, and run nothing."""
