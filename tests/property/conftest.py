"""Property tests take as long as they take, and try as many examples as the tier asks for."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.effort import examples

# Hypothesis gives an example 200 ms, and a strategy one second. A busy machine takes longer.
settings.register_profile(
    "patient",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")
