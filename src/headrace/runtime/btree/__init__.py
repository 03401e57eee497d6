"""A B+ tree over a blob store: the ordered maps that a task's stores are made of."""
