"""How a shard travels from one instance to another."""
