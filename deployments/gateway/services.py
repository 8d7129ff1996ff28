"""What a gateway is given: its collaborators and its limits. Built once, never global."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tenancy.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deployments.gateway.ports import Fleet
    from deployments.gateway.tokenizer import PromptTokenizer
    from tenancy.admission import Admission
    from tenancy.authentication import Authenticator
    from tenancy.clock import Clock
    from tenancy.keyring import Keyring

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Bounds on what one request may ask for and how long it may take."""

    max_body_bytes: int = 4 * MIB
    max_prompt_tokens: int | None = None
    """None: what the model can hold."""
    max_choices: int = 16
    """Of ``n``."""
    max_prompts: int = 64
    """Prompts in one completions request."""
    default_max_tokens: int | None = None
    """Of a chat answer when the client names none. None: what is left of the context."""
    max_inline_chars: int = 8192
    """Longer prompts are tokenized in a thread, so that they do not stop the event loop."""
    max_stream_s: float = 600.0
    """From admission to the last byte; the engine's budget too."""
    admit_timeout_s: float = 2.0
    settle_timeout_s: float = 5.0
    body_timeout_s: float = 30.0
    """For the client to send its body."""


@dataclass(frozen=True, slots=True)
class GatewayServices:
    authenticator: Authenticator
    keyring: Keyring
    admission: Admission
    fleet: Fleet
    tokenizers: Mapping[str, PromptTokenizer]
    """By model name; a model without one is not offered."""
    limits: GatewayLimits = GatewayLimits()
    clock: Clock = field(default_factory=SystemClock)
    adopt_request_id: bool = False
    """The server in front puts ``x-request-id`` on requests and answers itself (Ray Serve does):
    use that id and add no second header. Without it the gateway's own random id is the header."""
