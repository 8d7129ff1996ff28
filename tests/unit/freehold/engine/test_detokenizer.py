# pyright: reportUnknownMemberType=false
# tokenizers declares its lists of tokens without an element type.

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE

from freehold.engine.detokenizer import Detokenizer
from freehold.engine.vocabulary import Vocabulary
from freehold.errors import UnsupportedModel
from tests.support.engines import BOS, EOS, ByteTokenizer, ids_of

BYTES = Vocabulary(ByteTokenizer())


class PieceTokenizer:
    """Pieces with a space mark and byte fallback, as sentencepiece models come."""

    def __init__(self, *, strips: bool = True, decoder: decoders.Decoder | None = None) -> None:
        pieces = ["<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        pieces += ["▁", "▁Hello", "▁world", "Hello", "!", "é", "▁▁"]
        vocab = {piece: i for i, piece in enumerate(pieces)}
        self.backend_tokenizer = Tokenizer(BPE(vocab=vocab, merges=[], byte_fallback=True))
        steps: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback()]
        steps += [decoders.Fuse(), *([decoders.Strip(" ", 1, 0)] if strips else [])]
        self.backend_tokenizer.decoder = decoder or decoders.Sequence(steps)
        self.backend_tokenizer.add_special_tokens(["<s>", "</s>"])
        self.backend_tokenizer.add_tokens([AddedToken("<tool>", special=False)])

    @property
    def all_special_ids(self) -> list[int]:
        return [0, 1]

    def id_of(self, piece: str) -> int:
        token_id = self.backend_tokenizer.token_to_id(piece)
        assert token_id is not None
        return token_id


def shown(vocabulary: Vocabulary, ids: list[int], prompt: tuple[int, ...] = (0,)) -> list[str]:
    detokenizer = Detokenizer(vocabulary, prompt, skip_special_tokens=True)
    return [*(detokenizer.feed(token) for token in ids), detokenizer.flush()]


@settings(deadline=None)
@given(st.text(max_size=20))
def test_any_text_comes_back_in_whole_characters(text: str) -> None:
    pieces = shown(BYTES, list(ids_of(text)))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces if "\ufffd" not in text)


@settings(deadline=None)
@given(st.lists(st.integers(0, 255), max_size=30))
def test_any_bytes_read_as_python_reads_them(data: list[int]) -> None:
    assert "".join(shown(BYTES, [3 + b for b in data])) == bytes(data).decode("utf-8", "replace")


def test_an_emoji_appears_with_its_last_byte() -> None:
    assert shown(BYTES, list(ids_of("😀"))) == ["", "", "", "😀", ""]


def test_a_character_that_is_never_completed_is_replaced_at_the_end() -> None:
    assert shown(BYTES, list(ids_of("😀"))[:2]) == ["", "", "\ufffd"]


def test_special_tokens_are_skipped_or_spelled() -> None:
    assert "".join(shown(BYTES, [BOS, *ids_of("a"), EOS])) == "a"
    spelled = Detokenizer(BYTES, [], skip_special_tokens=False)
    assert spelled.feed(EOS) == "<eos>"


@pytest.mark.parametrize("strips", [True, False])
@pytest.mark.parametrize(
    "pieces",
    [
        ["▁Hello", "▁world", "!"],
        ["Hello", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "▁", "!"],
        ["<s>", "▁▁", "é", "<tool>", "▁world", "</s>"],
    ],
)
def test_pieces_read_as_the_tokenizer_decodes_them(pieces: list[str], strips: bool) -> None:
    tokenizer = PieceTokenizer(strips=strips)
    ids = [tokenizer.id_of(piece) for piece in pieces]
    text = "".join(shown(Vocabulary(tokenizer), ids))
    assert text == tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=True)


def test_a_continuation_keeps_its_leading_space() -> None:
    tokenizer = PieceTokenizer()
    vocabulary = Vocabulary(tokenizer)
    prompt = (0, tokenizer.id_of("▁Hello"))
    assert "".join(shown(vocabulary, [tokenizer.id_of("▁world")], prompt)) == " world"


def test_metaspace_pieces() -> None:
    tokenizer = PieceTokenizer(decoder=decoders.Metaspace())
    ids = [tokenizer.id_of("▁Hello"), tokenizer.id_of("▁world")]
    assert "".join(shown(Vocabulary(tokenizer), ids)) == "Hello world"


def test_an_unknown_id_stands_for_nothing() -> None:
    assert BYTES.token_bytes(100_000) == b""


def test_another_way_of_decoding_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="WordPiece"):
        Vocabulary(PieceTokenizer(decoder=decoders.WordPiece()))
