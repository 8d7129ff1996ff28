"""Which models the engine runs, and the reason for each that it refuses.

A family is here when its greedy tokens were shown to equal Hugging Face's own (the parity tests);
anything else is refused by name before its weights are read. Knows configurations only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from freehold.errors import UnsupportedModel

SUPPORTED = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
}
"""Model type (of config.json) → the architecture that is run."""

_SINKS = "its attention sinks are a softmax term that the paged kernels do not have"
_MLA = "multi-head latent attention caches a compressed state, not keys and values by head"
_NO_KV_HEADS = "its configuration has no num_key_value_heads, from which the pool is laid out"
_RECURRENT = "its recurrent state cannot be kept in blocks of keys and values"
_MULTIMODAL = "it takes images; only text models are served ({text} is the text part)"
_BIAS = "its attention adds a position bias that the paged kernels do not have"

_REFUSED = {
    "gpt_oss": _SINKS,
    "mimo_v2_flash": _SINKS,
    "deepseek_v2": _MLA,
    "deepseek_v3": _MLA,
    "deepseek_v32": _MLA,
    "kimi_k2": _MLA,
    "longcat_flash": _MLA,
    "minicpm3": _MLA,
    "gpt2": _NO_KV_HEADS,
    "gpt_bigcode": _NO_KV_HEADS,
    "gptj": _NO_KV_HEADS,
    "opt": _NO_KV_HEADS,
    "mamba": _RECURRENT,
    "mamba2": _RECURRENT,
    "falcon_mamba": _RECURRENT,
    "rwkv": _RECURRENT,
    "jamba": _RECURRENT,
    "qwen3_next": _RECURRENT,
    "bloom": _BIAS,
    "mpt": _BIAS,
    "gemma3": _MULTIMODAL.format(text="gemma3_text"),
    "mistral3": _MULTIMODAL.format(text="mistral"),
    "llama4": "its chunked attention is not implemented",
}

_ROPE_TYPES = {"default", "linear", "llama3", "yarn", "dynamic", "longrope"}
_LAYER_TYPES = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What the KV pool is laid out from and attention must do; the same in every layer."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    has_softcap: bool = False
    """Whether attention scores are capped, which not every backend can."""

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype_bytes


def check_supported(config: Mapping[str, Any]) -> str:
    """The architecture that will run the ``config`` (config.json as read).

    Raises:
        UnsupportedModel: by name and reason.
    """
    model_type = str(config.get("model_type", "unknown"))
    named = config.get("architectures") or [model_type]
    architecture = str(named[0])
    if reason := _REFUSED.get(model_type):
        raise UnsupportedModel(architecture, reason)
    if model_type not in SUPPORTED:
        known = ", ".join(sorted(SUPPORTED))
        raise UnsupportedModel(
            architecture,
            f"model type {model_type!r} was not shown to give right answers here (known: {known})",
        )
    expected = SUPPORTED[model_type]
    if architecture not in (expected, model_type):
        raise UnsupportedModel(architecture, f"of type {model_type!r} only {expected} is run")
    if reason := _feature_refused(config):
        raise UnsupportedModel(expected, reason)
    return expected


def _feature_refused(config: Mapping[str, Any]) -> str | None:
    if quantized := config.get("quantization_config"):
        return f"its weights are quantized ({quantized.get('quant_method', 'unknown method')})"
    if config.get("use_bidirectional_attention"):
        return "its attention looks ahead (an embedding model)"
    if others := set(config.get("layer_types") or ()) - _LAYER_TYPES:
        return f"it has layers of unknown type: {', '.join(sorted(others))}"
    if others := _rope_types(config) - _ROPE_TYPES:
        return f"its position encoding is unknown: {', '.join(sorted(others))}"
    return None


def attention_shape(config: Mapping[str, Any], architecture: str) -> AttentionShape:
    """Read from the complete configuration (defaults filled in by transformers).

    Raises:
        UnsupportedModel: the numbers do not fit together.
    """
    num_heads = int(config["num_attention_heads"])
    num_kv_heads = int(config["num_key_value_heads"])
    head_dim = int(config.get("head_dim") or int(config["hidden_size"]) // num_heads)
    if num_heads % num_kv_heads:
        raise UnsupportedModel(
            architecture, f"{num_heads} heads cannot share {num_kv_heads} key-value heads"
        )
    if head_dim % 2:
        raise UnsupportedModel(architecture, f"head size {head_dim} is odd")
    return AttentionShape(
        num_layers=int(config["num_hidden_layers"]),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        has_softcap=config.get("attn_logit_softcapping") is not None,
    )


def max_model_len(config: Mapping[str, Any]) -> int:
    """The longest prompt plus output for which a token's numbers depend on its own past only.

    ``longrope`` and ``dynamic`` change every frequency once the longest sequence *of the batch*
    passes the original length: cached keys of others would become wrong. Up to that length they
    are constant, so that is the limit.
    """
    limit = int(config["max_position_embeddings"])
    for rope in _ropes(config):
        if rope.get("rope_type") == "longrope":
            original = rope.get("original_max_position_embeddings")
            limit = min(limit, int(original or limit))
    return limit


def _rope_types(config: Mapping[str, Any]) -> set[str]:
    return {str(rope.get("rope_type") or rope.get("type") or "default") for rope in _ropes(config)}


def _ropes(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One set of rope parameters, or one for each type of layer (gemma3)."""
    rope: Mapping[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if "rope_type" in rope or "type" in rope:
        return [rope]
    return [parameters for parameters in rope.values() if isinstance(parameters, Mapping)]
