"""The entry point of the command ``headrace``."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_PACKAGES = ("typer", "rich")


def main() -> None:
    """Run the command line; its packages are an extra, so that programs need not install them."""
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        print(
            f"The command line needs {' and '.join(missing)}, which is not installed. "
            "Install it with `pip install 'headrace[cli]'`.",
            file=sys.stderr,
        )
        raise SystemExit(1)
    try:
        from headrace.cli.commands import app

        app()
    except KeyboardInterrupt:  # while a module is loaded; `Session.run` handles the rest
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
