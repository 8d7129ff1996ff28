"""Tiny models with random, seeded weights and a byte-level tokenizer, one of every family.

Small enough to run thousands of steps in a unit test, real enough that everything which reads a
model folder (configuration, safetensors, tokenizer, chat template) takes its usual path.
"""

# transformers, tokenizers and torch's random module are only partly typed:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

if TYPE_CHECKING:
    from pathlib import Path

PAD, BOS, EOS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
NUM_MERGES = 64
WINDOW = 24
"""Of the families that have one: short, so that a test prompt of a few blocks leaves it."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role: ' + message['role']) }}"
    "{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "mistral": ("mistral", {"sliding_window": WINDOW}),
    "gemma2": (
        "gemma2",
        {
            "sliding_window": WINDOW,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 1.0,
            "query_pre_attn_scalar": 24,
        },
    ),
    "gemma3": ("gemma3_text", {"sliding_window": WINDOW, "query_pre_attn_scalar": 24}),
    "phi3": ("phi3", {}),
    "olmo2": ("olmo2", {}),
}
FAMILIES = tuple(_FAMILIES)


def make_tiny_model(
    folder: Path,
    family: str = "llama",
    *,
    seed: int = 0,
    num_layers: int = 2,
    hidden_size: int = 64,
    max_model_len: int = 1024,
) -> Path:
    """Save a model of ``family`` (see ``FAMILIES``) and its tokenizer in ``folder``; returns it.

    4 heads, 2 key-value heads, float32. The same arguments make the same weights.
    """
    tokenizer = make_tokenizer(max_model_len)
    model_type, extra = _FAMILIES[family]
    config = AutoConfig.for_model(
        model_type,
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden_size // 4,
        max_position_embeddings=max_model_len,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **extra,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        _spread(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_tokenizer(max_model_len: int = 1024) -> PreTrainedTokenizerFast:
    """Byte-level BPE: every byte is a token, a few merges of frequent ASCII pairs, three specials.

    Text of any language survives a round trip; a character may need up to four tokens, so a
    detokenizer that is careless with UTF-8 shows it.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([PAD, BOS, EOS, *alphabet])}
    letters = "Ġetaoinshrd"
    merges = [(a, b) for a in letters for b in letters if b != "Ġ"][:NUM_MERGES]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    backend = Tokenizer(BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([PAD, BOS, EOS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=max_model_len,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


@torch.no_grad()
def _spread(model: torch.nn.Module) -> None:
    """Widen the default initialisation, under which a layer adds next to nothing.

    Greedy tokens then depend on the whole context instead of repeating the last token.
    """
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            embedding = "embed" in name or "lm_head" in name
            weight.normal_(std=0.02 if embedding else 1.6 * weight.shape[-1] ** -0.5)
