"""Reads the settings file and says what is wrong with it, field by field.

A mistake is reported by its full dotted path (``models[0].kv_block``) and, for an unknown key, the
nearest known name. Values are never repeated: one of them may be a secret.
"""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING, Any, cast, get_args

import yaml
from pydantic import BaseModel, ValidationError

from deployments.settings.schema import ENV_PREFIX, Settings
from freehold.errors import FreeholdError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]
ENVIRONMENT = "environment"


class InvalidSettings(FreeholdError):
    """The file cannot be used; ``problems`` has one line for each mistake."""

    def __init__(self, source: str, problems: tuple[str, ...]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(f"{self.source}: {problem}" for problem in self.problems)


def load_settings(path: Path) -> Settings:
    """Settings of the file at ``path``, overridden by ``FREEHOLD__…`` variables.

    Raises:
        InvalidSettings: unreadable, not YAML, unknown keys, or values out of range.
    """
    source = str(path)
    try:
        contents: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(source, (error.strerror or "cannot be read",)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidSettings(source, (_yaml_problem(error),)) from None
    if contents is None:
        contents = {}
    if not isinstance(contents, dict):
        raise InvalidSettings(source, ("must be a mapping of sections at the top level",))
    sections = cast("dict[object, Any]", contents).items()
    values = {str(key): value for key, value in sections if value is not None}
    unknown = _unknown_variables()
    if unknown:
        raise InvalidSettings(ENVIRONMENT, unknown)
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise InvalidSettings(source, _problems(error.errors())) from None
    return settings.anchored(path.resolve().parent)


def _unknown_variables() -> tuple[str, ...]:
    """Variables whose section does not exist: pydantic-settings passes those over in silence."""
    known = sorted(Settings.model_fields)
    sections = {
        name: name.removeprefix(ENV_PREFIX).split("__")[0].lower()
        for name in sorted(os.environ)
        if name.startswith(ENV_PREFIX)
    }
    return tuple(
        f"{name}: unknown section {section!r}{_hint(section, known)}"
        for name, section in sections.items()
        if section not in known
    )


def _problems(errors: Sequence[ErrorDetails]) -> tuple[str, ...]:
    """Deepest ones only: a list with one bad item is also reported as too short."""
    locations = [error["loc"] for error in errors]

    def is_shadow(error: ErrorDetails) -> bool:
        depth = len(error["loc"])
        return any(len(other) > depth and other[:depth] == error["loc"] for other in locations)

    return tuple(_problem(error) for error in errors if not is_shadow(error))


def _problem(error: ErrorDetails) -> str:
    location = error["loc"]
    path = _dotted(location)
    if error["type"] == "extra_forbidden":
        return f"{path}: unknown{_hint(str(location[-1]), _names_at(location[:-1]))}"
    return f"{path}: {error['msg'].removeprefix('Value error, ')}"


def _hint(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    nearest = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f", did you mean {nearest[0]}" if nearest else f", known here: {', '.join(names)}"


def _names_at(location: Location) -> tuple[str, ...]:
    """The keys that exist in the section at ``location``."""
    model: type[BaseModel] = Settings
    for step in location:
        if isinstance(step, int):
            continue
        annotation: Any = model.model_fields[step].annotation
        candidates: tuple[object, ...] = (annotation, *get_args(annotation))
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return tuple(model.model_fields)


def _dotted(location: Location) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "settings"


def _yaml_problem(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    """Where it is wrong; never the text there, which the library's own message quotes."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return "not valid YAML"
    return f"not valid YAML at line {mark.line + 1}, column {mark.column + 1}"
