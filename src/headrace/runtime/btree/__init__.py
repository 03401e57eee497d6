"""The B+ tree that stores are made of, over a blob store."""
