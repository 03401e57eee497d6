"""A model of writer, broker and instances that attacks the protocol of queries."""
