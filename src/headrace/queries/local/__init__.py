"""The queries that one instance answers in Python, in the words of Kafka Streams."""
