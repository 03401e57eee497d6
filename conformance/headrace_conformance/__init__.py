"""The Python side of the conformance suite: scenarios on Headrace, compared with goldens."""
