from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from headrace.config import Setting, StreamsConfig, catalogue
from headrace.config.loading import settings_from_file
from headrace.config.values import Prefixed
from headrace.errors import ConfigError

plain = [s for s in catalogue().values() if not isinstance(s.value, Prefixed)]
names = st.sampled_from([s.name for s in catalogue().values()]) | st.text(max_size=20)
values = st.text(max_size=10) | st.integers() | st.booleans() | st.floats() | st.none()


@given(st.dictionaries(names, values, max_size=6))
def test_any_mapping_makes_a_config_or_lists_its_problems(properties: dict[str, object]) -> None:
    with suppress(ConfigError):
        config = StreamsConfig.from_properties(properties)
        assert StreamsConfig.from_properties(config.properties()) == config


@given(st.text())
def test_a_name_that_is_accepted_stays_where_it_is_put(name: str) -> None:
    with suppress(ConfigError):
        accepted = StreamsConfig(application_id=name).require_application_id()
        assert (Path("state") / accepted).resolve().parent == Path("state").resolve()


@given(st.integers(0, 10**12), st.sampled_from([s for s in plain if s.name.endswith(".ms")]))
def test_a_length_of_time_is_the_same_in_code_and_in_a_file(length: int, setting: Setting) -> None:
    config = StreamsConfig.from_properties({setting.name: str(length)})

    assert getattr(config, setting.keyword) == timedelta(milliseconds=length)
    assert config.properties() == {setting.name: length}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_a_properties_file(text: str) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "app.properties"
        file.write_text(text.replace("${", ""), encoding="utf-8", newline="")

        settings, problems = settings_from_file(file, {})

    assert problems == []
    assert all(isinstance(value, str) for value in settings.values())
