"""The processes that Spark starts: Java and Python."""
