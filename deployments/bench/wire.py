"""The parts of OpenAI's answers that a benchmark reads; everything else is passed over."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


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


class Model(Shape):
    id: str


class Models(Shape):
    data: list[Model]
