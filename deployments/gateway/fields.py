"""Which fields exist: unknown ones are refused with the nearest name, refused ones by name.

A field with the value ``null`` counts as absent, and so does a refused one with a value that asks
for what happens anyway (``response_format: {"type": "text"}``). Types are not this module's
business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from deployments.gateway.refusals import UnknownParameter, UnsupportedParameter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

_NOT_SUPPORTED = "is not supported by this service"


@dataclass(frozen=True, slots=True)
class FieldTable:
    known: AbstractSet[str]
    refused: Mapping[str, Sequence[object]] = field(default_factory=dict[str, "Sequence[object]"])
    """Name → values that are as good as none."""

    def present(self, members: Mapping[str, object], path: str = "") -> dict[str, object]:
        """The known members that are not null. ``path`` is where they are (``messages[0].``).

        Raises:
            UnsupportedParameter, UnknownParameter
        """
        return {
            name: value for name, value in members.items() if self._is_present(name, value, path)
        }

    def _is_present(self, name: str, value: object, path: str) -> bool:
        if name in self.known:
            return value is not None
        if name not in self.refused:
            param = path + shown(name)
            raise UnknownParameter(param, self._advice(shown(name)))
        if value is not None and value not in self.refused[name]:
            param = path + name
            raise UnsupportedParameter(param, _NOT_SUPPORTED)
        return False

    def _advice(self, name: str) -> str:
        near = get_close_matches(name, [*self.known, *self.refused], n=1)
        return f"is unknown; did you mean {near[0]!r}?" if near else "is unknown"


def shown(name: str) -> str:
    """A client's own name for a field, fit for an error message and a header-sized log."""
    return name[:64].encode("ascii", "backslashreplace").decode()
