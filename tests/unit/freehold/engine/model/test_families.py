"""What is run, what is refused, and the reason that is given."""

from __future__ import annotations

from typing import Any

import pytest

from freehold.engine.model.families import (
    SUPPORTED,
    AttentionShape,
    attention_shape,
    check_supported,
    max_model_len,
)
from freehold.errors import UnsupportedModel

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "max_position_embeddings": 8192,
}


@pytest.mark.parametrize(("model_type", "architecture"), SUPPORTED.items())
def test_the_families_are_taken(model_type: str, architecture: str) -> None:
    config = {"model_type": model_type, "architectures": [architecture]}
    assert check_supported(config) == architecture
    assert check_supported({"model_type": model_type}) == architecture


@pytest.mark.parametrize(
    ("config", "name", "reason"),
    [
        ({"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"]}, "GptOss", "sinks"),
        ({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}, "V3", "latent"),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "GPT2", "num_key_value"),
        ({"model_type": "mamba"}, "mamba", "recurrent"),
        ({"model_type": "gemma3"}, "gemma3", "images"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "BertModel", "'bert'"),
        ({}, "unknown", "not shown"),
        (LLAMA | {"architectures": ["LlamaForTokenClassification"]}, "TokenClass", "only Llama"),
        (LLAMA | {"quantization_config": {"quant_method": "gptq"}}, "Llama", "gptq"),
        (LLAMA | {"use_bidirectional_attention": True}, "Llama", "looks ahead"),
        (LLAMA | {"layer_types": ["full_attention", "linear_attention"]}, "Llama", "linear_att"),
        (LLAMA | {"rope_parameters": {"rope_type": "spiral"}}, "Llama", "spiral"),
        (LLAMA | {"rope_scaling": {"type": "spiral"}}, "Llama", "spiral"),
        (
            LLAMA | {"rope_parameters": {"full_attention": {"rope_type": "spiral"}}},
            "Llama",
            "spiral",
        ),
    ],
)
def test_anything_else_is_refused_by_name_and_reason(
    config: dict[str, Any], name: str, reason: str
) -> None:
    with pytest.raises(UnsupportedModel) as refused:
        check_supported(config)
    assert name in refused.value.architecture
    assert reason in refused.value.reason


def test_the_shape_is_read_and_checked() -> None:
    assert attention_shape(LLAMA, "x") == AttentionShape(30, 9, 3, 64)
    assert attention_shape(LLAMA | {"head_dim": 128}, "x").head_dim == 128
    assert attention_shape(LLAMA | {"attn_logit_softcapping": 50.0}, "x").has_softcap
    assert AttentionShape(30, 9, 3, 64).kv_bytes_per_token(2) == 23_040
    with pytest.raises(UnsupportedModel, match="cannot share"):
        attention_shape(LLAMA | {"num_key_value_heads": 2}, "x")


def test_the_limit_is_where_rope_would_look_at_the_rest_of_the_batch() -> None:
    assert max_model_len(LLAMA) == 8192
    longrope = {"rope_type": "longrope", "original_max_position_embeddings": 4096}
    assert max_model_len(LLAMA | {"rope_parameters": longrope}) == 4096
    by_layer = {"full_attention": longrope, "sliding_attention": {"rope_type": "default"}}
    assert max_model_len(LLAMA | {"rope_parameters": by_layer}) == 4096
    yarn = {"rope_type": "yarn", "original_max_position_embeddings": 4096}
    assert max_model_len(LLAMA | {"rope_parameters": yarn}) == 8192
