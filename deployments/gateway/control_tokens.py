"""Control tokens in a client's text: found, fenced while a template runs, encoded as plain text.

A fence is a pair of characters around the token that occur nowhere else. Decides which tokens
control a chat and how their letters are encoded; knows no template.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from freehold.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokenizers import Tokenizer

Fences = tuple[str, str]
_NONCHARACTERS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
"""Unicode keeps them for a program's own use; no tokenizer or template knows them."""


def free_fences(texts: Iterable[str]) -> Fences:
    """Two characters that none of ``texts`` holds.

    Raises:
        InvalidRequest: they hold every one of them.
    """
    taken = {char for text in texts for char in text}
    free = [char for char in _NONCHARACTERS if char not in taken]
    if len(free) < 2:
        raise InvalidRequest(
            param="messages", reason="must not hold control tokens and noncharacters"
        )
    return free[0], free[1]


def fence(text: str, controls_re: re.Pattern[str], fences: Fences) -> str:
    return controls_re.sub(lambda match: f"{fences[0]}{match.group()}{fences[1]}", text)


def split_fenced(
    text: str, fences: Fences, controls_re: re.Pattern[str]
) -> Iterable[tuple[str, bool]]:
    """The text in pieces, and whether one is a client's control token.

    A fence that the template has torn from its token is dropped, and still keeps the text on its
    two sides from growing together into a control token.
    """
    opening, closing = fences
    pieces = re.split(f"{opening}({controls_re.pattern}){closing}|[{opening}{closing}]", text)
    for i, piece in enumerate(cast("list[str | None]", pieces)):
        if piece:
            yield piece, i % 2 == 1


def control_tokens(backend: Tokenizer, template: str) -> dict[str, int]:
    """Special tokens, and added ones that the template writes (Gemma's ``<start_of_turn>``).

    White space is ordinary text, whatever the tokenizer calls it.
    """
    added = backend.get_added_tokens_decoder()
    return {
        token.content: token_id
        for token_id, token in added.items()
        if (token.special or token.content in template) and token.content.strip()
    }


def any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """The longest wins. Of none, matches nothing."""
    words = frozenset(tokens)
    return re.compile(_trie(words) if words else r"(?!)")


def _trie(words: frozenset[str]) -> str:
    """A pattern that looks at each character once: some tokenizers have thousands of control
    tokens, and a plain alternation would try each of them at every ``<`` of a prompt."""
    tails: dict[str, set[str]] = {}
    for word in words - {""}:
        tails.setdefault(word[0], set()).add(word[1:])
    branches = [re.escape(head) + _trie(frozenset(tails[head])) for head in sorted(tails)]
    if not branches:
        return ""
    if len(branches) == 1 and "" not in words:
        return branches[0]
    return f"(?:{'|'.join(branches)})" + ("?" if "" in words else "")


def plain_ids(backend: Tokenizer, token: str, token_id: int) -> list[int] | None:
    """The ids of a control token's letters: the pipeline without its first step, added tokens.

    None when the model itself knows no other spelling.
    """
    text = token if backend.normalizer is None else backend.normalizer.normalize_str(token)
    words = [text]
    if backend.pre_tokenizer is not None:
        words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    ids = [piece.id for word in words for piece in backend.model.tokenize(word)]
    return None if token_id in ids or not ids else ids
