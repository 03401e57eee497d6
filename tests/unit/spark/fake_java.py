"""A Java that only prints its version."""

from __future__ import annotations

from pathlib import Path


def install(home: Path, says: str, then: str = "") -> Path:
    """Write a `java` that says which version it is, as Java does: to standard error."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\n{then}\n")
    java.chmod(0o755)
    return java
