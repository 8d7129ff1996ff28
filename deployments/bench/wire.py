"""What a benchmark sends, and the parts of OpenAI's answers that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from freehold.errors import FreeholdError
from freehold.protocol import CacheMode

if TYPE_CHECKING:
    from collections.abc import Mapping


class RequestFailed(FreeholdError):
    """The service could not be reached, refused a request or broke off; a figure needs them all."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Shape(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Cached(Shape):
    cached_tokens: int = 0


class Usage(Shape):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: Cached | None = None


class Answer(Shape):
    usage: Usage


class Delta(Shape):
    content: str | None = None


class Choice(Shape):
    delta: Delta = Delta()
    finish_reason: str | None = None


class Failure(Shape):
    message: str = "no message"


class Chunk(Shape):
    choices: list[Choice] = Field(default_factory=list[Choice])
    error: Failure | None = None

    @property
    def carries_text(self) -> bool:
        return any(choice.delta.content or choice.finish_reason for choice in self.choices)


class Model(Shape):
    id: str


class Models(Shape):
    data: list[Model]


_Shape = TypeVar("_Shape", bound=Shape)


def parse(path: str, shape: type[_Shape], body: str | bytes) -> _Shape:
    """
    Raises:
        RequestFailed: ``body`` is of another shape.
    """
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        reason = f"an answer of another shape: {error.errors()[0]['msg']}"
        raise RequestFailed(path, reason) from error


def request_body(
    model: str, prompt: Mapping[str, object], max_tokens: int, cache: CacheMode
) -> dict[str, object]:
    """A greedy answer of exactly ``max_tokens`` tokens."""
    body: dict[str, object] = {
        "model": model,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        **prompt,
    }
    if cache is not CacheMode.ON:  # the default is left out: other servers do not know it
        body["cache"] = cache.value
    return body
