"""The root of every error that Freehold raises on purpose.

Errors carry data, never an HTTP status: the gateway maps them in one table. They cross process
boundaries by pickle, so a subclass keeps its fields as the positional arguments of ``__init__``
and passes exactly those to ``super().__init__``. None may hold a prompt, a key or a salt.
"""

from __future__ import annotations


class FreeholdError(Exception):
    """Root of the hierarchy; ``args`` are the fields, ``str()`` is made from them."""


class InvalidRequest(FreeholdError):
    """The caller's fault: ``param`` names the field, ``reason`` says what was expected."""

    def __init__(self, param: str, reason: str) -> None:
        super().__init__(param, reason)
        self.param = param
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.param}: {self.reason}"


class CapacityExceeded(FreeholdError):
    """A bounded queue is full; the caller may come back after ``retry_after_s`` seconds."""

    def __init__(self, what: str, retry_after_s: float) -> None:
        super().__init__(what, retry_after_s)
        self.what = what
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.what} is full; retry after {self.retry_after_s:.1f} s"


class UnsupportedModel(FreeholdError):
    """A model is refused at load: ``architecture`` by name, ``reason`` in words."""

    def __init__(self, architecture: str, reason: str) -> None:
        super().__init__(architecture, reason)
        self.architecture = architecture
        self.reason = reason

    def __str__(self) -> str:
        return f"model architecture {self.architecture!r} is not supported: {self.reason}"


class EngineDead(FreeholdError):
    """The engine's step thread has failed for good; the replica must be replaced."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the engine has stopped: {self.reason}"


class StepFailed(FreeholdError):
    """The device failed while it computed a step of this request; others may still succeed.

    ``reason`` names the kind of failure only: a device's message may quote what it computed.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"a step of this request could not be computed: {self.reason}"
