"""The windows that hold a timestamp: arithmetic only."""

from headrace.windows.join_windows import JoinWindows
from headrace.windows.session_windows import SessionWindows
from headrace.windows.sliding_windows import SlidingWindows
from headrace.windows.time_windows import TimeWindows
from headrace.windows.unlimited_windows import UnlimitedWindows
from headrace.windows.window import Window, Windowed

__all__ = [
    "JoinWindows",
    "SessionWindows",
    "SlidingWindows",
    "TimeWindows",
    "UnlimitedWindows",
    "Window",
    "Windowed",
]
