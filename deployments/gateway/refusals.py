"""Why the gateway itself turns a request away. Values with data; the status is ``errors``' table.

What the engine, the fleet or the tenant's policy refuse has its own error in its own room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freehold.errors import FreeholdError, InvalidRequest

if TYPE_CHECKING:
    from tenancy.authentication import AuthFailure
    from tenancy.principal import Scope

BODY = "body"
"""The ``param`` of what no single field is to blame for."""


class UnsupportedParameter(InvalidRequest):
    """A known field that would change the answer, and that this service cannot honour."""


class UnknownParameter(InvalidRequest):
    """A field that no OpenAI client sends and that Freehold does not define."""


class ContextLengthExceeded(InvalidRequest):
    """Prompt and output do not fit the model's context."""


class ModelNotFound(InvalidRequest):
    def __init__(self, model: str) -> None:
        super().__init__("model", f"the model {model!r} does not exist")
        self.args = (model,)


class ModelNotReady(FreeholdError):
    """Configured, but no replica of it is up (yet)."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.model = model

    def __str__(self) -> str:
        return f"no replica of the model {self.model!r} is up"


class BodyTooLarge(FreeholdError):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.max_bytes = max_bytes

    def __str__(self) -> str:
        return f"the body must have at most {self.max_bytes} bytes"


class BodyTooSlow(FreeholdError):
    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.limit_s = limit_s

    def __str__(self) -> str:
        return f"the body did not arrive within {self.limit_s:g} s"


class NotAuthenticated(FreeholdError):
    """Says as little as possible: see ``tenancy.authentication``."""

    def __init__(self, reason: AuthFailure) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"authentication failed: {self.reason}"


class ScopeMissing(FreeholdError):
    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.scope = scope

    def __str__(self) -> str:
        return f"this API key lacks the scope {self.scope.value!r}"


class QuotaExceeded(FreeholdError):
    """Admission said no; ``retry_after_s`` None when coming back does not help."""

    def __init__(self, reason: str, retry_after_s: float | None) -> None:
        super().__init__(reason, retry_after_s)
        self.reason = reason
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return self.reason


class PathNotFound(FreeholdError):
    def __init__(self, method: str, path: str) -> None:
        super().__init__(method, path)
        self.method = method
        self.path = path

    def __str__(self) -> str:
        return f"unknown URL: {self.method} {self.path}"


class MethodNotAllowed(FreeholdError):
    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(method, allowed)
        self.method = method
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.method} is not allowed here; use {self.allowed}"


class TimeLimitExceeded(FreeholdError):
    """``what`` took longer than the ``limit_s`` it has."""

    def __init__(self, what: str, limit_s: float) -> None:
        super().__init__(what, limit_s)
        self.what = what
        self.limit_s = limit_s

    def __str__(self) -> str:
        return f"{self.what} took longer than {self.limit_s:g} s"


class GenerationAborted(FreeholdError):
    """The engine gave the request up before its end (deadline, or an operator)."""

    def __str__(self) -> str:
        return "the engine stopped this request before it was finished"
