"""Chat messages: from the wire to what a chat template may see, role and text only.

Parts of type text are joined as they are, so that what the client wrote is what the model reads.
Everything else that a message can carry (images, audio, tool calls, cache markers) is refused by
name: dropping it would change the answer, or who can find it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, cast

from deployments.gateway.fields import FieldTable
from deployments.gateway.refusals import UnsupportedParameter
from freehold.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Role = Literal["system", "user", "assistant"]


class ChatMessage(TypedDict):
    role: Role
    content: str
    name: NotRequired[str]


MESSAGE_FIELDS = FieldTable(
    frozenset({"role", "content", "name"}),
    # What an SDK's own message object says when it is sent back is as good as none.
    {
        "annotations": ([],),
        "audio": (),
        "cache_control": (),
        "function_call": (),
        "reasoning_content": (),
        "refusal": (),
        "tool_call_id": (),
        "tool_calls": ([],),
    },
)
PART_FIELDS = FieldTable(
    frozenset({"type", "text"}), {"cache_control": (), "prompt_cache_breakpoint": ()}
)
PART_TYPES_REFUSED = frozenset({"image_url", "input_audio", "file", "refusal", "video_url"})
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",  # the same thing, renamed by OpenAI; templates know the old name
    "user": "user",
    "assistant": "assistant",
}
_ROLES_REFUSED = frozenset({"tool", "function"})
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def parse_messages(messages: Sequence[Mapping[str, object]]) -> tuple[ChatMessage, ...]:
    """
    Raises:
        InvalidRequest: ``param`` is ``messages[2].content`` and the like.
    """
    return tuple(_message(wire, f"messages[{i}]") for i, wire in enumerate(messages))


def _message(wire: Mapping[str, object], path: str) -> ChatMessage:
    members = MESSAGE_FIELDS.present(wire, f"{path}.")
    message = ChatMessage(
        role=_role(members.get("role"), f"{path}.role"),
        content=_content(members.get("content"), f"{path}.content"),
    )
    if "name" in members:
        message["name"] = _name(members["name"], f"{path}.name")
    return message


def _role(role: object, path: str) -> Role:
    if isinstance(role, str):
        if role in _ROLES:
            return _ROLES[role]
        if role in _ROLES_REFUSED:
            raise UnsupportedParameter(path, f"the role {role!r} needs tools")
    raise InvalidRequest(path, f"must be one of {', '.join(sorted(_ROLES))}")


def _name(name: object, path: str) -> str:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise InvalidRequest(path, f"must match {_NAME.pattern}")


def _content(content: object, path: str) -> str:
    if isinstance(content, str):
        return valid_text(content, path)
    if isinstance(content, list) and content:
        parts = cast("list[object]", content)
        return "".join(_part(part, f"{path}[{i}]") for i, part in enumerate(parts))
    raise InvalidRequest(path, "must be a string or a non-empty list of text parts")


def _part(part: object, path: str) -> str:
    if not isinstance(part, dict):
        raise InvalidRequest(path, 'must be an object like {"type": "text", "text": "…"}')
    wire = cast("dict[str, object]", part)
    kind = wire.get("type")
    if isinstance(kind, str) and kind in PART_TYPES_REFUSED:
        raise UnsupportedParameter(
            param=f"{path}.type", reason=f"parts of type {kind!r} are not supported"
        )
    members = PART_FIELDS.present(wire, f"{path}.")
    if kind != "text":
        raise InvalidRequest(param=f"{path}.type", reason="must be 'text'")
    text = members.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(param=f"{path}.text", reason="must be a string")
    return valid_text(text, f"{path}.text")


def valid_text(text: str, path: str) -> str:
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidRequest(path, "must be valid Unicode: it holds a lone surrogate")
    return text
