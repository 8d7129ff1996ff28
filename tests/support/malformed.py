"""Requests that nobody may send: name, path, body, and the refusal that each must get."""

from __future__ import annotations

import json
from dataclasses import dataclass

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MODEL = "tiny"
SURROGATE = r'"\ud800"'


@dataclass(frozen=True)
class Malformed:
    name: str
    path: str
    body: bytes
    param: str
    status: int = 400
    code: str = "invalid_value"


def _chat(name: str, param: str, code: str = "invalid_value", **fields: object) -> Malformed:
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": MODEL, "messages": messages} | fields
    return Malformed(name, CHAT, json.dumps(body).encode(), param, code=code)


def _message(name: str, param: str, message: object, code: str = "invalid_value") -> Malformed:
    return _chat(name, param, code, messages=[message])


def _user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def _completion(name: str, param: str, code: str = "invalid_value", **fields: object) -> Malformed:
    body = {"model": MODEL, "prompt": "Hi"} | fields
    return Malformed(name, COMPLETIONS, json.dumps(body).encode(), param, code=code)


def _raw(name: str, body: bytes, param: str = "body", status: int = 400) -> Malformed:
    code = "body_too_large" if status == 413 else "invalid_value"
    return Malformed(name, CHAT, body, param, status, code)


UNSUPPORTED = "unsupported_parameter"
UNKNOWN = "unknown_parameter"
TOO_LONG = "context_length_exceeded"
GOOD_CHAT = b'{"model":"tiny","messages":[{"role":"user","content":"Hi"}]'

BODIES = [
    _raw("empty body", b""),
    _raw("not JSON", b"model=tiny"),
    _raw("cut short", GOOD_CHAT),
    _raw("text behind the end", GOOD_CHAT + b"} trailing"),
    _raw("an array", b"[1, 2]"),
    _raw("a string", b'"Hi"'),
    _raw("null", b"null"),
    _raw("invalid UTF-8", b'{"model": "\xff\xfe"}'),
    _raw("overlong UTF-8", b'{"model": "\xc0\x80"}'),
    _raw("UTF-16", '{"model": "tiny"}'.encode("utf-16")),
    _raw("byte order mark", b"\xef\xbb\xbf" + GOOD_CHAT + b"}"),
    _raw("NaN", GOOD_CHAT + b', "temperature": NaN}'),
    _raw("Infinity", GOOD_CHAT + b', "top_p": -Infinity}'),
    _raw("duplicate member", GOOD_CHAT + b', "model": "other"}'),
    _raw("duplicate member inside", b'{"model":"tiny","messages":[{"role":"user","role":"x"}]}'),
    _raw("nested too deep", GOOD_CHAT + b', "metadata": ' + b"[" * 40 + b"]" * 40 + b"}"),
    _raw("nested absurdly deep", b"[" * 50_000),
    _raw("a number of 5000 digits", GOOD_CHAT + b', "seed": ' + b"9" * 5000 + b"}"),
    _raw("control character in a string", b'{"model": "a\nb"}'),
    _raw("too large", GOOD_CHAT + b" " * 300_000 + b"}", status=413),
    _raw("infinite by overflow", GOOD_CHAT + b', "temperature": 1e999}', "temperature"),
    _raw(
        "lone surrogate in a message",
        b'{"model":"tiny","messages":[{"role":"user","content":' + SURROGATE.encode() + b"}]}",
        "messages[0].content",
    ),
    _raw("lone surrogate in stop", GOOD_CHAT + f', "stop": [{SURROGATE}]}}'.encode(), "stop[0]"),
]

MODELS = [
    Malformed(
        "unknown model",
        CHAT,
        b'{"model":"gpt-9","messages":[{"role":"user","content":"Hi"}]}',
        "model",
        404,
        "model_not_found",
    ),
    _chat("model is null", "model", model=None),
    _chat("model is a number", "model", model=7),
    _chat("model is empty", "model", model=""),
    _chat("model is endless", "model", model="m" * 1000),
]

MESSAGES = [
    _raw("no messages", b'{"model":"tiny"}', "messages"),
    _chat("messages is a string", "messages", messages="Hi"),
    _chat("messages is empty", "messages", messages=[]),
    _chat("too many messages", "messages", messages=[_user("")] * 5000),
    _message("a message is a string", "messages[0]", "Hi"),
    _chat("the second has no role", "messages[1].role", messages=[_user("Hi"), {"content": "x"}]),
    _message("unknown role", "messages[0].role", {"role": "root", "content": "Hi"}),
    _message("role is a list", "messages[0].role", {"role": ["user"], "content": "Hi"}),
    _message("tool role", "messages[0].role", {"role": "tool", "content": "Hi"}, code=UNSUPPORTED),
    _message("no content", "messages[0].content", {"role": "user"}),
    _message("content is a number", "messages[0].content", _user(5)),
    _message("content is an object", "messages[0].content", _user({"text": "Hi"})),
    _message("content is an empty list", "messages[0].content", _user([])),
    _message("a part is a string", "messages[0].content[0]", _user(["Hi"])),
    _message("a part has no type", "messages[0].content[0].type", _user([{"text": "Hi"}])),
    _message("a part has no text", "messages[0].content[0].text", _user([{"type": "text"}])),
    _message(
        "an image",
        "messages[0].content[0].type",
        _user([{"type": "image_url", "image_url": {"url": "http://x/"}}]),
        code=UNSUPPORTED,
    ),
    _message(
        "a cache marker in a part",
        "messages[0].content[0].cache_control",
        _user([{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]),
        code=UNSUPPORTED,
    ),
    _message(
        "a cache marker in a message",
        "messages[0].cache_control",
        _user("Hi") | {"cache_control": {"type": "ephemeral"}},
        code=UNSUPPORTED,
    ),
    _message(
        "tool calls",
        "messages[0].tool_calls",
        {"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]},
        code=UNSUPPORTED,
    ),
    _message(
        "a typing error in a message",
        "messages[0].contnt",
        {"role": "user", "contnt": "Hi"},
        code=UNKNOWN,
    ),
    _message("name with a newline", "messages[0].name", _user("Hi") | {"name": "a\nb"}),
    _chat(
        "refused by the template",
        "messages",
        messages=[_user("Hi"), {"role": "assistant", "content": "no"}, _user("REFUSE")],
    ),
]

NUMBERS = [
    _chat("temperature as text", "temperature", temperature="1"),
    _chat("temperature as truth", "temperature", temperature=True),
    _chat("temperature too high", "temperature", temperature=2.1),
    _chat("temperature negative", "temperature", temperature=-0.1),
    _chat("top_p zero", "top_p", top_p=0),
    _chat("top_p above one", "top_p", top_p=1.5),
    _chat("top_k below minus one", "top_k", top_k=-2),
    _chat("min_p above one", "min_p", min_p=2),
    _chat("presence penalty", "presence_penalty", presence_penalty=3),
    _chat("frequency penalty", "frequency_penalty", frequency_penalty=-3),
    _chat("repetition penalty zero", "repetition_penalty", repetition_penalty=0),
    _chat("n zero", "n", n=0),
    _chat("n negative", "n", n=-1),
    _chat("n huge", "n", n=10_000),
    _chat("n beyond 64 bits", "n", n=2**70),
    _chat("n fractional", "n", n=1.5),
    _chat("max_tokens zero", "max_tokens", max_tokens=0),
    _chat("max_tokens negative", "max_tokens", max_tokens=-5),
    _chat("max_tokens a float", "max_tokens", max_tokens=5.0),
    _chat("more output than context", "max_tokens", TOO_LONG, max_tokens=100_000),
    _chat(
        "the same by its new name",
        "max_completion_tokens",
        TOO_LONG,
        max_completion_tokens=100_000,
    ),
    _chat("two limits", "max_completion_tokens", max_tokens=5, max_completion_tokens=6),
    _chat("min above max", "min_tokens", max_tokens=5, min_tokens=6),
    _chat("min negative", "min_tokens", min_tokens=-1),
    _chat("seed beyond 64 bits", "seed", seed=2**64),
    _chat("seed as text", "seed", seed="7"),
    _chat("logprobs as number", "logprobs", logprobs=1),
    _chat("top_logprobs alone", "top_logprobs", top_logprobs=2),
    _chat("too many top_logprobs", "top_logprobs", logprobs=True, top_logprobs=21),
]

COLLECTIONS = [
    _chat("stop is a number", "stop", stop=5),
    _chat("stop is empty", "stop[0]", stop=""),
    _chat("five stops", "stop", stop=["a", "b", "c", "d", "e"]),
    _chat("a stop is a number", "stop[1]", stop=["a", 1]),
    _chat("stop token negative", "stop_token_ids[0]", stop_token_ids=[-1]),
    _chat("stop token unknown", "stop_token_ids", stop_token_ids=[99_999]),
    _chat("bias is a list", "logit_bias", logit_bias=[1]),
    _chat("bias of a word", "logit_bias.hello", logit_bias={"hello": 1}),
    _chat("bias of a token by a second name", "logit_bias.05", logit_bias={"5": 1, "05": 2}),
    _chat("bias of a negative token", "logit_bias.-1", logit_bias={"-1": 1}),
    _chat("bias of an unknown token", "logit_bias", logit_bias={"99999": 1}),
    _chat("bias too strong", "logit_bias.5", logit_bias={"5": 101}),
    _chat("stream as text", "stream", stream="yes"),
    _chat("stream options without stream", "stream_options", stream_options={}),
    _chat("stream options as truth", "stream_options", stream=True, stream_options=True),
    _chat(
        "unknown stream option",
        "stream_options.include_usages",
        UNKNOWN,
        stream=True,
        stream_options={"include_usages": True},
    ),
    _chat("unknown cache mode", "cache", cache="maybe"),
    _chat("cache as truth", "cache", cache=False),
    _chat("salt is empty", "cache_salt", cache_salt=""),
    _chat("salt with a separator", "cache_salt", cache_salt="org/user"),
    _chat("salt with NUL", "cache_salt", cache_salt="a\0b"),
    _chat("salt is endless", "cache_salt", cache_salt="s" * 129),
    _chat("salt is a number", "cache_salt", cache_salt=5),
    _chat("prompt_cache_key is empty", "prompt_cache_key", prompt_cache_key=""),
    _chat("metadata of numbers", "metadata.a", metadata={"a": 1}),
    _chat("user is a number", "user", user=5),
]

FIELDS = [
    _chat("a typing error", "temprature", UNKNOWN, temprature=1),
    _chat("another service's field", "guided_regex", UNKNOWN, guided_regex=".*"),
    _chat("a completion's field", "prompt", UNKNOWN, prompt="Hi"),
    _chat("tools", "tools", UNSUPPORTED, tools=[{"type": "function"}]),
    _chat("tool choice", "tool_choice", UNSUPPORTED, tool_choice="auto"),
    _chat("functions", "functions", UNSUPPORTED, functions=[{"name": "f"}]),
    _chat("JSON mode", "response_format", UNSUPPORTED, response_format={"type": "json_object"}),
    _chat("audio", "modalities", UNSUPPORTED, modalities=["audio"]),
    _chat("prediction", "prediction", UNSUPPORTED, prediction={"type": "content"}),
    _chat("cache options", "prompt_cache_options", UNSUPPORTED, prompt_cache_options={"a": 1}),
    _chat("effort", "reasoning_effort", UNSUPPORTED, reasoning_effort="high"),
    _completion("suffix", "suffix", UNSUPPORTED, suffix="end"),
    _completion("best_of", "best_of", UNSUPPORTED, best_of=2),
    _completion("a chat's field", "messages", UNKNOWN, messages=[]),
]

PROMPTS = [
    Malformed("no prompt", COMPLETIONS, b'{"model":"tiny"}', "prompt"),
    _completion("prompt is null", "prompt", prompt=None),
    _completion("prompt is empty", "prompt", prompt=""),
    _completion("prompt is an empty list", "prompt", prompt=[]),
    _completion("prompt is a number", "prompt", prompt=5),
    _completion("prompt is an object", "prompt", prompt={"text": "Hi"}),
    _completion("a negative token", "prompt", prompt=[5, -1]),
    _completion("an unknown token", "prompt", prompt=[5, 99_999]),
    _completion("a token beyond 32 bits", "prompt", prompt=[2**40]),
    _completion("tokens and text", "prompt", prompt=[5, "Hi"]),
    _completion("truth for a token", "prompt", prompt=[True]),
    _completion("a float for a token", "prompt[0]", prompt=[1.5]),
    _completion("an empty text among texts", "prompt[1]", prompt=["Hi", ""]),
    _completion("an empty list among lists", "prompt[1]", prompt=[[5], []]),
    _completion("a number among texts", "prompt[1]", prompt=["Hi", 5]),
    _completion("a negative token inside", "prompt[1]", prompt=[[5], [-5]]),
    _completion("lists of lists", "prompt[0]", prompt=[[[5]]]),
    _completion("too many prompts", "prompt", prompt=["a"] * 65),
    _completion("too many choices in all", "n", prompt=["a"] * 60, n=2),
    _completion("echo with logprobs", "logprobs", echo=True, logprobs=1),
    _completion("prompt longer than the context", "prompt", TOO_LONG, prompt=[5] * 512),
    _completion("text longer than the context", "prompt", TOO_LONG, prompt="word " * 2000),
    _completion("the second is too long", "prompt[1]", TOO_LONG, prompt=[[5], [5] * 512]),
    _completion(
        "prompt and output too long", "max_tokens", TOO_LONG, prompt=[5] * 505, max_tokens=8
    ),
    _chat("chat longer than the context", "messages", TOO_LONG, messages=[_user("word " * 2000)]),
]

MALFORMED = [*BODIES, *MODELS, *MESSAGES, *NUMBERS, *COLLECTIONS, *FIELDS, *PROMPTS]
