"""The engine's limits, read once by whoever builds it.

Decides nothing about models or devices; refuses combinations under which no step could run.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Sizes are in blocks or tokens, a step is one call of the executor."""

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 64
    """Sequences that run together; each choice of a request is one."""
    max_step_tokens: int = 1024
    """Tokens in one step, decodes included; also the largest prompt chunk."""
    max_step_ms: float = 50.0
    """What a step that decodes may take: it bounds the prompt tokens that ride along."""
    min_chunk_tokens: int = 64
    """Prompt tokens a step may always compute, so that decodes never starve a prompt."""
    max_waiting: int = 256
    """Sequences that wait; a request that would pass it is refused at once."""
    max_prefix_waits: int = 3
    """How often one sequence waits for a prefix that another one computes; 0 turns it off."""
    coalesce_ms: float = 15.0
    """Tokens of one choice are handed over together within this time, the first at once."""
    max_consecutive_failures: int = 3
    """Failed steps in a row after which the engine gives up."""
    final_usage_ttl_s: float = 600.0
    max_final_usages: int = 100_000

    def __post_init__(self) -> None:
        may_be_zero = {"max_prefix_waits", "coalesce_ms"}
        for item in fields(self):
            value = getattr(self, item.name)
            if value < 0 or (value == 0 and item.name not in may_be_zero):
                message = f"{item.name} must be positive, got {value}"
                raise ValueError(message)
        if self.max_step_tokens < self.max_num_seqs:
            message = (
                f"max_step_tokens ({self.max_step_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}): every running sequence decodes one token a step"
            )
            raise ValueError(message)
