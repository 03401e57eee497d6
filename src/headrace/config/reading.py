"""Gathers settings from all their sources, and every problem with them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from headrace.config.catalogue import Catalogue, Setting, keyword_of
from headrace.config.masking import MaskedSettings
from headrace.config.names import (
    ALIASES,
    CONSUMER_NAMES,
    PRODUCER_NAMES,
    REFUSED,
    WITHOUT_EFFECT,
    clients_of,
)
from headrace.config.values import Prefixed

_log = logging.getLogger(__name__)

VARIABLE_PREFIX = "HEADRACE_"
"""The prefix of environment variables that are settings."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")


class Reading:
    """The settings read so far; what is read later wins, name by name under a prefix."""

    def __init__(self, catalogue: Catalogue, start: Mapping[str, object] | None = None) -> None:
        self.values: dict[str, object] = dict(start or {})
        """The settings read so far, by keyword."""
        self.problems: list[str] = []
        """The settings that cannot be used, each with its fix."""
        self._catalogue = catalogue
        self._by_name: dict[str, Setting] = {}
        self._by_prefix: dict[str, tuple[Setting, Prefixed]] = {}
        for setting in catalogue.values():
            if not isinstance(setting.value, Prefixed):
                self._by_name[setting.name] = setting
            elif setting.value.prefix:
                self._by_prefix[setting.name] = setting, setting.value

    def take_keywords(self, settings: Mapping[str, object]) -> None:
        """Read settings as Python code names them; None takes a setting back."""
        for keyword, value in settings.items():
            setting = self._catalogue.get(keyword)
            if setting is None:
                self.problems.append(self._unknown_keyword(keyword))
            elif isinstance(setting.value, Prefixed) and isinstance(value, Mapping):
                # Name by name, so that one problem does not hide another.
                for name, item in value.items():
                    if not setting.value.prefix and self._is_known(name):
                        self.problems.append(
                            f"`{keyword}` has the name {name!r}, which is a setting of its own. "
                            f"Write it outside `{keyword}`."
                        )
                        continue
                    self._take(setting, {name: item}, keyword)
            else:
                self._take(setting, value, keyword)

    def take_properties(self, properties: Mapping[str, object], *, origin: str = "") -> None:
        """Read settings under their dotted names; numbers and durations may be text.

        None takes a setting back. Problems name ``origin``, a file or a variable.
        """
        before = len(self.problems)
        # Less specific names first, so that the more specific name wins.
        for name in sorted(properties, key=self._is_specific):
            self._take_property(name, properties[name])
        if origin:
            self.problems[before:] = [f"{origin}: {problem}" for problem in self.problems[before:]]

    def take_variables(self, variables: Mapping[str, str]) -> None:
        """Read the environment variables that are settings: ``HEADRACE_APPLICATION_ID``."""
        names = {_variable(name): name for name in self._by_name}
        names |= {_variable(setting.keyword): name for name, setting in self._by_name.items()}
        for variable, text in sorted(variables.items()):
            if not variable.startswith(VARIABLE_PREFIX):
                continue
            spelled = variable.removeprefix(VARIABLE_PREFIX).lower().replace("_", ".")
            name = names.get(variable, spelled)
            if self._is_known(name):
                self.take_properties({name: text}, origin=variable)
            else:
                self.problems.append(_unknown(variable, names))

    def _take(self, setting: Setting, value: object, what: str) -> None:
        if value is None:
            self.values.pop(setting.keyword, None)
            return
        try:
            read = setting.value.read(value, what)
        except ValueError as error:
            self.problems.append(str(error))
            return
        earlier = self.values.get(setting.keyword)
        if isinstance(read, MaskedSettings) and isinstance(earlier, MaskedSettings):
            read = read.laid_over(earlier)
        self.values[setting.keyword] = read

    def _take_property(self, name: object, value: object) -> None:
        if not isinstance(name, str):
            self.problems.append(f"{name!r} is not the name of a setting. Use text.")
        elif setting := self._by_name.get(ALIASES.get(name, name)):
            meant = setting.value.from_text(value) if isinstance(value, str) else value
            self._take(setting, meant, name)
        elif prefix := self._prefix_of(name):
            setting, prefixed = self._by_prefix[prefix]
            rest = name if prefixed.keeps_prefix else name.removeprefix(prefix)
            self._take(setting, {rest: value}, prefix)
        elif clients := clients_of(name):
            for client in clients:
                self._take(self._catalogue[client], {name: value}, client)
        elif name in REFUSED:
            self.problems.append(f"`{name}` cannot be followed here. {REFUSED[name]}")
        elif name in WITHOUT_EFFECT:
            _log.warning("The setting %s has no effect. %s", name, WITHOUT_EFFECT[name])
        elif problem := self._misspelled(name):
            self.problems.append(problem)
        elif not _NAME.fullmatch(name):
            self.problems.append(
                f"{name[:40]!r} is not the name of a setting. "
                "Use letters, digits, dots, hyphens and underscores."
            )
        else:
            _log.info("The setting %s belongs to the application; Headrace has none.", name)
            self._take(self._catalogue["app_configs"], {name: value}, "app_configs")

    def _prefix_of(self, name: str) -> str | None:
        # The longest: `main.consumer.` names are not `consumer.` names.
        return max((p for p in self._by_prefix if name.startswith(p)), key=len, default=None)

    def _is_specific(self, name: object) -> bool:
        return not isinstance(name, str) or not (name in ALIASES or clients_of(name))

    def _is_known(self, name: str) -> bool:
        return bool(
            name in self._by_name
            or name in ALIASES
            or name in REFUSED
            or name in WITHOUT_EFFECT
            or clients_of(name)
            or self._prefix_of(name)
        )

    def _unknown_keyword(self, keyword: str) -> str:
        name = self._name_of(keyword)
        if setting := self._by_name.get(ALIASES.get(name, name)):
            written = f"Write `{setting.keyword}`."
        elif prefix := self._prefix_of(name):
            setting, prefixed = self._by_prefix[prefix]
            rest = name if prefixed.keeps_prefix else name.removeprefix(prefix)
            written = f"Write `{setting.keyword}={{{rest!r}: …}}`."
        elif clients := clients_of(name):
            written = f"Write `{clients[0]}={{{name!r}: …}}`."
        elif name in REFUSED:
            written = REFUSED[name]
        elif name in WITHOUT_EFFECT:
            written = f"It would have no effect: {WITHOUT_EFFECT[name]} Leave it out."
        else:
            return _unknown(keyword, self._catalogue)
        return f"`{keyword}` is not a keyword. {written}"

    def _misspelled(self, name: str) -> str | None:
        """Return the problem with a name that is meant for a setting; None if it is not."""
        if setting := self._catalogue.get(name):
            written = f"`{setting.name}`"
            if isinstance(setting.value, Prefixed):
                written = f"`{setting.name}…`" if setting.value.prefix else "the names in it"
            return f"`{name}` is a keyword of Python code. Here write {written}."
        spelled = name.replace("_", ".")
        if self._is_known(spelled):
            return f"`{name}` has underscores, but Kafka's names have dots. Write `{spelled}`."
        known = self._known_names()
        near = (n for n in known if n == f"{name}.ms" or _is_one_typo_away(name, n))
        meant = next(near, None)
        return meant and f"`{name}` is not a setting. Did you mean `{meant}`?"

    def _name_of(self, keyword: str) -> str:
        """Return the dotted name that a keyword would have, were it one."""
        spelled = (n for n in self._known_names() if keyword in (keyword_of(n), _underscored(n)))
        return next(spelled, keyword if "." in keyword else keyword.replace("_", "."))

    def _known_names(self) -> list[str]:
        return [
            *self._by_name,
            *ALIASES,
            *REFUSED,
            *WITHOUT_EFFECT,
            *sorted(CONSUMER_NAMES),
            *sorted(PRODUCER_NAMES),
            *sorted(f"consumer.{name}" for name in CONSUMER_NAMES),
            *sorted(f"producer.{name}" for name in PRODUCER_NAMES),
        ]


def _unknown(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    remedy = f"Did you mean `{close[0]}`?" if close else "Remove it."
    return f"`{name}` is not a setting. {remedy}"


def _is_one_typo_away(name: str, other: str) -> bool:
    """Return whether one letter is missing, added, wrong, or exchanged with the next one."""
    same = next((i for i, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), -1)
    same = min(len(name), len(other)) if same < 0 else same
    a, b = name[same:], other[same:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


def _variable(name: str) -> str:
    return VARIABLE_PREFIX + _underscored(name).upper()


def _underscored(name: str) -> str:
    return name.replace(".", "_")
