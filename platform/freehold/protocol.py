"""The contract between a gateway and an engine: values down, streams and reports back.

An engine sees block keys and opaque account ids; it never sees a salt, a tenant's name or an API
key. Everything here is a frozen value that pickles, so an engine of another make (vLLM, say) can
stand behind the same ``Engine`` protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NewType, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

RequestId = NewType("RequestId", str)
AccountId = NewType("AccountId", str)
"""Opaque, random, stable over epochs: ``tn_…``, ``gr_…``, ``pb_…``; never a name."""
EpochId = NewType("EpochId", str)
"""Random 128-bit id (hex) of one generation of a domain's secret; not a counter."""
BlockKey = NewType("BlockKey", bytes)
"""16 bytes, chained: equal keys mean equal tokens, salt and model (see ``freehold.kv.keys``)."""
Incarnation = NewType("Incarnation", str)
"""Random id of one engine process; its cache entries die with it."""
Medium = NewType("Medium", str)
"""Where cached tokens were found. Only ``DEVICE`` until tiers exist."""

DEVICE = Medium("device")


class CacheMode(StrEnum):
    """What a request may do with the prefix cache."""

    ON = "on"
    NO_STORE = "no-store"
    """Looks up, never inserts."""
    OFF = "off"
    """Neither looks up nor inserts, in any tier."""


class FinishReason(StrEnum):
    """Why one choice ended; the first two are OpenAI's."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class AccountPolicy:
    """One account's share of one replica's pool; travels with requests, the newest version wins."""

    version: int = 0
    floor_blocks: int = 0
    ceiling_blocks: int | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Region:
    """Blocks ``[previous region's end_block, end_block)`` belong to this account and epoch."""

    end_block: int
    account_id: AccountId
    epoch_id: EpochId


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom blocks behind the last region (the tail, decode included) belong to."""

    account_id: AccountId
    epoch_id: EpochId


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next tokens are chosen. Already validated: ranges are the gateway's business.

    ``temperature`` 0 is greedy. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off. ``logprobs`` is
    None for none, else the number of alternatives wanted besides the chosen token (0 allowed).
    ``seed`` makes choice ``i`` of a request reproducible (it uses ``seed + i``).
    """

    max_tokens: int
    min_tokens: int = 0
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    seed: int | None = None
    logprobs: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One request as an engine sees it.

    ``block_keys[i]`` names block ``i`` of ``token_ids`` (full blocks only); ``next_parent`` is the
    parent of the first block that is not full yet, so the engine can extend the chain during
    decode without any salt. ``regions`` are sorted by ``end_block``; blocks behind the last one
    belong to ``tail``. ``deadline_s`` is a budget from arrival at the engine, None for none.
    """

    request_id: RequestId
    model: str
    fingerprint: str
    """Of the model that the keys were made for; an engine of another one refuses the request."""
    token_ids: tuple[int, ...]
    block_keys: tuple[BlockKey, ...]
    next_parent: BlockKey
    tail: Owner
    sampling: SamplingParams
    regions: tuple[Region, ...] = ()
    policies: Mapping[AccountId, AccountPolicy] = field(
        default_factory=dict["AccountId", "AccountPolicy"]
    )
    cache: CacheMode = CacheMode.ON
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, cumulative for the request (all its choices). ``prompt`` includes cached ones."""

    prompt: int = 0
    cached_by_medium: Mapping[Medium, int] = field(default_factory=dict["Medium", int])
    output: int = 0

    @property
    def cached(self) -> int:
        return sum(self.cached_by_medium.values())


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token's natural-log probability; ``token_bytes`` are the bytes it stands for."""

    token_id: int
    token: str
    token_bytes: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class PositionLogprobs:
    """The chosen token and the most likely alternatives (best first) at one position."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class EngineTiming:
    """Of one request, in seconds from its arrival at the engine's queue."""

    scheduled_s: float
    """Until the first step that computed a token of it."""
    first_token_s: float
    """Until its first delta was handed over."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What choice ``index`` gained. ``text`` is whole characters only; it may lag ``token_ids``.

    ``logprobs`` has one entry a token when asked for. ``timing`` comes with the first delta of a
    request only.
    """

    index: int
    token_ids: tuple[int, ...]
    text: str
    usage: Usage
    logprobs: tuple[PositionLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or token id that matched, None for the end-of-sequence token."""
    timing: EngineTiming | None = None


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a gateway must know of a loaded model to make requests for it."""

    model: str
    fingerprint: str
    architecture: str
    dtype: str
    block_size: int
    num_blocks: int
    max_model_len: int
    """Prompt plus output, in tokens: the smallest of the model's, the setting's and the pool's."""
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    attention_backend: str


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """Blocks charged to one account in one replica."""

    active_blocks: int
    cached_blocks: int


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """Absolute state of one replica; absolute, because sums of deltas drift."""

    incarnation: Incarnation
    card: ModelCard
    free_blocks: int
    active_blocks: int
    cached_blocks: int
    num_running: int
    num_waiting: int
    queued_prefill_tokens: int
    prefill_tokens_per_s: float
    """Measured, smoothed; 0 until something was measured."""
    decode_step_s: float
    prompt_tokens_total: int
    cached_tokens_total: int
    computed_prefill_tokens_total: int
    output_tokens_total: int
    num_preemptions_total: int
    num_finished_total: int
    num_aborted_total: int
    accounts: Mapping[AccountId, AccountUsage]
    healthy: bool
    """The step thread lives and free + active + cached = total."""


class Engine(Protocol):
    """What a replica offers, whoever wrote it."""

    def card(self) -> ModelCard: ...

    def generate(self, request: GenerateRequest) -> AsyncIterator[Delta]:
        """Stream the answer; the last delta of every choice has a ``finish_reason``.

        Closing the iterator early aborts the request and returns its blocks.

        Raises:
            InvalidRequest: the request can never run here (too long, wrong model or keys).
            CapacityExceeded: the waiting queue is full.
            EngineDead: the step thread has failed.
        """
        ...

    def abort(self, request_id: RequestId) -> None:
        """Stop a request; unknown ids are ignored (it may have finished)."""
        ...

    def purge(self, account_id: AccountId, keep_epoch_id: EpochId | None) -> int:
        """Drop the account's cached blocks of other epochs; returns how many became free."""
        ...

    def report(self) -> ReplicaReport: ...

    def final_usage(self, request_id: RequestId) -> Usage | None:
        """The last usage of a request that ended in the past ten minutes, else None."""
        ...
