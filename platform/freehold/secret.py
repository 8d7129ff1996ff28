"""A value that must never be seen: redacted in every text form, refused by pickle and copy."""

from __future__ import annotations

import hmac
from typing import NoReturn


class Secret:
    """Wraps bytes. ``reveal()`` is the only way to them, so that its uses can be read in one grep."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    __hash__ = None  # type: ignore[assignment]  # a hash of a secret is a weak copy of it

    def __repr__(self) -> str:
        return f"{type(self).__name__}(redacted)"

    def __reduce__(self) -> NoReturn:
        message = f"a {type(self).__name__} does not leave its process"
        raise TypeError(message)
