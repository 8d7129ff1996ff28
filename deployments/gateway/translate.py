"""An engine's refusal in the terms of the wire: it names fields of ``GenerateRequest``."""

from __future__ import annotations

from deployments.gateway.ports import ReplicaLost
from freehold.errors import FreeholdError, InvalidRequest

_SAME_NAME = frozenset({"model", "n", "max_tokens", "stop_token_ids", "logit_bias", "cache"})


class RequestMisread(FreeholdError):
    """The gateway made a request that the engine finds contradictory: a bug of ours, so 500."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field

    def __str__(self) -> str:
        return f"an engine refused the field {self.field!r} of a request"


def in_wire_terms(refusal: InvalidRequest, prompt_field: str) -> FreeholdError:
    """``prompt_field`` is what the client calls the prompt: ``messages`` or ``prompt``."""
    if refusal.param in _SAME_NAME:
        return refusal
    if refusal.param == "token_ids":
        return InvalidRequest(prompt_field, refusal.reason)
    if refusal.param == "fingerprint":  # a rolling update: the next try meets the new version
        return ReplicaLost(reason="it serves another version of the model")
    return RequestMisread(refusal.param)
