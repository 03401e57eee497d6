"""Words by their first letter: tables, aggregations and joins."""
