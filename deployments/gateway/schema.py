"""The wire schema: every field of OpenAI's that is supported or without effect, and our own.

Pydantic decides types and ranges that need no knowledge of a model; limits of this deployment and
of the model are checked where the request is prepared. Strict: no string becomes a number.
"""

from __future__ import annotations

from typing import Annotated, NoReturn, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from deployments.gateway.fields import FieldTable, shown
from deployments.gateway.refusals import BODY
from freehold.errors import InvalidRequest
from freehold.protocol import CacheMode

MAX_INT64 = 2**63 - 1
MAX_STOPS = 4
_CACHE_MODES: dict[str, CacheMode] = {mode.value: mode for mode in CacheMode}


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        kind, words = "unicode", "must be valid Unicode: it holds a lone surrogate"
        raise PydanticCustomError(kind, words) from None
    return text


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _token_id(text: str) -> str:
    is_decimal = text.isascii() and text.isdigit() and len(text) <= 10
    if not is_decimal or text != str(int(text)):  # 05 would be a second name of 5
        kind, words = "token_id", "keys must be token ids in decimal"
        raise PydanticCustomError(kind, words)
    return text


def _cache_mode(value: object) -> object:
    """Strict mode wants the enum itself, the wire has its value."""
    return _CACHE_MODES.get(value, value) if isinstance(value, str) else value


Text = Annotated[str, AfterValidator(_unicode)]
Label = Annotated[Text, Field(max_length=512)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Fraction = Annotated[float, Field(gt=0, le=1)]
PositiveInt = Annotated[int, Field(ge=1, le=MAX_INT64)]
TokenId = Annotated[int, Field(ge=0, le=2**32 - 1)]
Stop = Annotated[Text, Field(min_length=1, max_length=1024)]
Stops = Annotated[list[Stop], BeforeValidator(_as_list), Field(max_length=MAX_STOPS)]
LogitBias = dict[
    Annotated[str, AfterValidator(_token_id)], Annotated[float, Field(ge=-100, le=100)]
]


class WireModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class StreamOptions(WireModel):
    include_usage: bool = False


class SamplingFields(WireModel):
    """What both endpoints share. The second group is Freehold's, named as vLLM names it."""

    model: Annotated[Text, Field(min_length=1, max_length=256)]
    max_tokens: PositiveInt | None = None
    n: PositiveInt = 1
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Fraction = 1.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: Annotated[LogitBias, Field(max_length=1024)] = Field(default_factory=LogitBias)
    seed: Annotated[int, Field(ge=-MAX_INT64 - 1, le=MAX_INT64)] | None = None
    stop: Stops = Field(default_factory=list[str])
    stream: bool = False
    stream_options: StreamOptions | None = None

    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] = 1.0
    min_tokens: Annotated[int, Field(ge=0, le=MAX_INT64)] = 0
    ignore_eos: bool = False
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] = Field(
        default_factory=list[int]
    )
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True

    cache: Annotated[CacheMode, BeforeValidator(_cache_mode)] = CacheMode.ON
    cache_salt: SecretStr | None = None
    prompt_cache_key: Annotated[Text, Field(min_length=1, max_length=256)] | None = None

    # Accepted without effect: they are about the caller's own bookkeeping.
    user: Label | None = None
    safety_identifier: Label | None = None
    metadata: Annotated[dict[Label, Label], Field(max_length=16)] | None = None
    store: bool | None = None
    service_tier: Label | None = None


class ChatRequest(SamplingFields):
    messages: Annotated[list[dict[str, object]], Field(min_length=1, max_length=4096)]
    """Looked into by ``messages``, which knows what a message may hold."""
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class CompletionRequest(SamplingFields):
    prompt: object
    """Text, token ids, or a list of either: told apart by ``prompts``."""
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


_REFUSED_BY_BOTH: dict[str, tuple[object, ...]] = {
    "prompt_cache_options": (),
    "prompt_cache_retention": ("in_memory",),
    "cache_control": (),
}
CHAT_FIELDS = FieldTable(
    frozenset(ChatRequest.model_fields),
    {
        **_REFUSED_BY_BOTH,
        "audio": (),
        "function_call": ("none",),
        "functions": ([],),
        "modalities": (["text"],),
        "moderation": (),
        "parallel_tool_calls": (),
        "prediction": (),
        "reasoning_effort": (),
        "response_format": ({"type": "text"},),
        "tool_choice": ("none",),
        "tools": ([],),
        "verbosity": (),
        "web_search_options": (),
    },
)
COMPLETION_FIELDS = FieldTable(
    frozenset(CompletionRequest.model_fields), {**_REFUSED_BY_BOTH, "best_of": (), "suffix": ("",)}
)
STREAM_OPTIONS_FIELDS = FieldTable(
    frozenset(StreamOptions.model_fields), {"include_obfuscation": (False,)}
)

_Model = TypeVar("_Model", bound=SamplingFields)


def parse_chat(body: dict[str, object]) -> ChatRequest:
    """
    Raises:
        InvalidRequest: ``param`` names the field.
    """
    return _parse(ChatRequest, CHAT_FIELDS, body)


def parse_completion(body: dict[str, object]) -> CompletionRequest:
    """
    Raises:
        InvalidRequest: ``param`` names the field.
    """
    return _parse(CompletionRequest, COMPLETION_FIELDS, body)


def _parse(model: type[_Model], table: FieldTable, body: dict[str, object]) -> _Model:
    members = table.present(body)
    options = members.get("stream_options")
    if isinstance(options, dict):
        wire = cast("dict[str, object]", options)
        members["stream_options"] = STREAM_OPTIONS_FIELDS.present(wire, "stream_options.")
    try:
        request = model.model_validate(members)
    except ValidationError as error:
        _refuse(error.errors(include_url=False, include_context=False, include_input=False)[0])
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest(param="stream_options", reason="is only allowed with stream: true")
    return request


def _refuse(detail: ErrorDetails) -> NoReturn:
    raise InvalidRequest(param_of(detail["loc"]), detail["msg"])


def param_of(location: tuple[int | str, ...]) -> str:
    """``("messages", 0, "role")`` → ``messages[0].role``.

    A part of the location that pydantic adds for a dictionary's key is left out.
    """
    param = ""
    for part in location:
        if isinstance(part, int):
            param += f"[{part}]"
        elif part != "[key]":
            param += f".{shown(part)}" if param else shown(part)
    return param or BODY
