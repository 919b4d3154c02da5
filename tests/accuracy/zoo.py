"""The models of the family: targets, drafters, draft heads."""

from __future__ import annotations

from functools import cache

from .models import (
    Checkpoint,
    Net,
    Tensors,
    attention_tensors,
    gdn_tensors,
    given,
    linear_tensors,
    mlp_tensors,
)


def dense(name, layers, hidden, inter, heads, kv, dim, vocab, fmt="bf16", **more) -> Net:
    """A decoder of equal attention layers; `tied` leaves the output layer out."""
    tied, qk_norm = more.get("tied", False), more.get("qk_norm", False)
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (vocab, hidden))}
    for i in range(layers):
        p = f"model.layers.{i}."
        tensors |= attention_tensors(p, hidden, heads, kv, dim, fmt, qk_norm=qk_norm)
        tensors |= mlp_tensors(f"{p}mlp.", hidden, inter, fmt)
    tensors["model.norm.weight"] = ("BF16", (hidden,))
    if not tied:
        tensors |= linear_tensors("lm_head", vocab, hidden, more.get("head_fmt", "bf16"))
    family = "Qwen3" if qk_norm else "Llama"
    config = {
        "architectures": [f"{family}ForCausalLM"],
        "model_type": family.lower(),
        "hidden_size": hidden,
        "intermediate_size": inter,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": dim,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        "dtype": "bfloat16",
    }
    ckpt = Checkpoint(name, config, tensors, shards=more.get("shards", 1))
    head = "model.embed_tokens" if tied else "lm_head"
    prefix = "model.layers.{i}."
    return Net(ckpt, prefix, ("attn",) * layers, hidden, heads, kv, dim, head, qk_norm)


def moe(name, layers, hidden, inter, experts, top_k, shared=0, fused=False, fmt="bf16") -> Net:
    """Mixture of experts: a tensor per expert, or the experts stacked in one."""
    heads, kv, dim, vocab = 32, 4, 128, 151936
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (vocab, hidden))}
    for i in range(layers):
        p = f"model.layers.{i}."
        tensors |= attention_tensors(p, hidden, heads, kv, dim, fmt)
        tensors[f"{p}mlp.gate.weight"] = ("BF16", (experts, hidden))
        if fused:
            tensors[f"{p}mlp.experts.gate_up_proj"] = ("BF16", (experts, 2 * inter, hidden))
            tensors[f"{p}mlp.experts.down_proj"] = ("BF16", (experts, hidden, inter))
        else:
            for e in range(experts):
                tensors |= mlp_tensors(f"{p}mlp.experts.{e}.", hidden, inter, fmt)
        if shared:
            tensors |= mlp_tensors(f"{p}mlp.shared_expert.", hidden, shared, fmt)
            tensors[f"{p}mlp.shared_expert_gate.weight"] = ("BF16", (1, hidden))
    tensors["model.norm.weight"] = ("BF16", (hidden,))
    tensors |= linear_tensors("lm_head", vocab, hidden, "bf16")
    config = {
        "architectures": ["Qwen2MoeForCausalLM" if shared else "Qwen3MoeForCausalLM"],
        "model_type": "qwen2_moe" if shared else "qwen3_moe",
        "hidden_size": hidden,
        "intermediate_size": 6144,
        "moe_intermediate_size": inter,
        "num_experts": experts,
        "num_experts_per_tok": top_k,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": dim,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    } | ({"shared_expert_intermediate_size": shared} if shared else {})
    ckpt = Checkpoint(name, config, tensors, shards=4)
    return Net(
        ckpt, "model.layers.{i}.", ("attn",) * layers, hidden, heads, kv, dim, "lm_head",
        experts=experts, top_k=top_k,
    )  # fmt: skip


def hybrid(name, layers, hidden, inter, heads, kv, vocab, fmt="bf16", **more) -> Net:
    """Three recurrent layers, then one attention layer; MTP head where asked for."""
    key, value, vheads = more.get("gdn", (2048, 4096, 32))
    fused, prefix = more.get("fused", False), more.get("prefix", "model.language_model.")
    tied = more.get("tied", False)
    kinds = tuple("attn" if i % 4 == 3 else "gdn" for i in range(layers))
    tensors: Tensors = {f"{prefix}embed_tokens.weight": ("BF16", (vocab, hidden))}
    late = more.get("late_fmt", fmt)  # format of the MLPs in the last eighth
    for i, kind in enumerate(kinds):
        p = f"{prefix}layers.{i}."
        inner = "fp8" if fmt == "nvfp4" else fmt
        if kind == "gdn":
            tensors |= gdn_tensors(p, hidden, key, value, vheads, inner, fused)
        else:
            tensors |= attention_tensors(p, hidden, heads, kv, 256, inner, gated=True)
        tensors |= mlp_tensors(f"{p}mlp.", hidden, inter, late if i >= layers * 7 // 8 else fmt)
    tensors[f"{prefix}norm.weight"] = ("BF16", (hidden,))
    if not tied:
        tensors |= linear_tensors("lm_head", vocab, hidden, more.get("head_fmt", "bf16"))
    if more.get("mtp", True):
        tensors |= attention_tensors("mtp.layers.0.", hidden, heads, kv, 256, "bf16", gated=True)
        tensors |= mlp_tensors("mtp.layers.0.mlp.", hidden, inter, "bf16")
        tensors |= linear_tensors("mtp.fc", hidden, 2 * hidden, "bf16")
        names = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
        tensors |= {f"mtp.{x}.weight": ("BF16", (hidden,)) for x in names}
    text = {
        "hidden_size": hidden,
        "intermediate_size": inter,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": 256,
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "layer_types": ["full_attention" if k == "attn" else "linear_attention" for k in kinds],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": value // vheads,
        "linear_num_key_heads": key // 128,
        "linear_num_value_heads": vheads,
        "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1 if more.get("mtp", True) else 0,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        "dtype": "bfloat16",
        "model_type": "qwen3_5_text",
    }
    arch = "Qwen3NextForCausalLM" if fused else "Qwen3_5ForConditionalGeneration"
    config = {"architectures": [arch], "model_type": "qwen3_next" if fused else "qwen3_5"}
    config |= text | {"model_type": "qwen3_next"} if fused else {"text_config": text}
    ckpt = Checkpoint(name, config, tensors, shards=more.get("shards", 2))
    return _hybrid_net(ckpt, prefix, kinds, hidden, heads, kv, value, vheads, tied)


def _hybrid_net(ckpt, prefix, kinds, hidden, heads, kv, value, vheads, tied=False) -> Net:
    state = 2 * vheads * 128 * (value // vheads)
    head = f"{prefix}embed_tokens" if tied else "lm_head"
    return Net(
        ckpt, prefix + "layers.{i}.", kinds, hidden, heads, kv, 256, head,
        gated=True, state_bytes=state,
    )  # fmt: skip


def built27(fmt: str) -> Net:
    """The 64-layer hybrid from shapes."""
    layers = {"nvfp4": "nvfp4", "fp8": "fp8-block", "bf16": "bf16"}[fmt]
    more = {"late_fmt": "fp8", "head_fmt": "fp8"} if fmt == "nvfp4" else {}
    shape = (64, 5120, 17408, 24, 4, 248320)
    return hybrid(f"target-{fmt}", *shape, layers, gdn=(2048, 6144, 48), **more)


def hybrid27(fmt: str) -> Net:
    """The 64-layer hybrid: the published headers where present, else the like from shapes."""
    published = given(f"target-{fmt}")
    if published is None:
        return built27(fmt)
    kinds = tuple("attn" if i % 4 == 3 else "gdn" for i in range(64))
    return _hybrid_net(published, "model.language_model.", kinds, 5120, 24, 4, 6144, 48)


def mtp_of(net: Net) -> Net:
    """The MTP head that lies in a target's checkpoint."""
    return Net(
        net.ckpt, "mtp.layers.{i}.", ("attn",), net.hidden, net.heads, net.kv_heads,
        net.head_dim, net.head, net.qk_norm, net.gated, extra={"fc": "mtp.fc"},
    )  # fmt: skip


def block_drafter(name, layers, hidden, inter, vocab, aux, fmt="bf16", v2=True) -> Net:
    """A block drafter after DFlash or DFlash2: no embedding and no head of its own."""
    heads, kv, dim = 32, 8, 128
    tensors = linear_tensors("fc", hidden, aux * hidden, fmt)
    for i in range(layers):
        p = f"layers.{i}."
        tensors |= attention_tensors(p, hidden, heads, kv, dim, fmt)
        tensors |= mlp_tensors(f"{p}mlp.", hidden, inter, fmt)
        for conv in ("attention_conv", "mlp_conv") if v2 else ():
            tensors[f"{p}{conv}.base_kernel"] = ("BF16", (2, 2, hidden))
            tensors[f"{p}{conv}.kernel_projection.weight"] = ("BF16", (hidden // 4, hidden))
    tensors |= {f"{x}.weight": ("BF16", (hidden,)) for x in ("hidden_norm", "norm")}
    if v2:
        tensors["candidate_selector.hidden_projection.weight"] = ("BF16", (256, hidden))
        for x in ("predecessor", "successor"):
            tensors[f"candidate_selector.{x}_codebook"] = ("BF16", (vocab, 256))
    arch = "DFlash2DraftModel" if v2 else "DFlashDraftModel"
    config = {
        "architectures": [arch],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": inter,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": dim,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "dflash_config": {"block_size": 8, "target_layer_ids": list(range(1, 6 * aux, 6))[:aux]},
    }
    if v2:  # as published for DFlash2; `program` reads no more than that of the cache
        config |= {"sliding_window": 2048, "layer_types": ["sliding_attention"] * layers}
        config["use_sliding_window"] = True
    extra = {"fc": "fc", "conv": v2, "selector": v2}
    kinds = ("attn",) * layers
    ckpt = Checkpoint(name, config, tensors)
    return Net(ckpt, "layers.{i}.", kinds, hidden, heads, kv, dim, None, extra=extra)


def eagle3(name, hidden, inter, heads, kv, draft_vocab, vocab, fmt="bf16") -> Net:
    """One layer over embedding and hidden state, with its own small head and id map."""
    p = "midlayer."
    tensors = linear_tensors("fc", hidden, 3 * hidden, "bf16")
    tensors |= attention_tensors(
        p, hidden, heads, kv, 128, fmt, q_in=2 * hidden, qk_norm=False, norms=("hidden_norm",)
    )
    tensors |= mlp_tensors(f"{p}mlp.", hidden, inter, fmt)
    tensors |= linear_tensors("lm_head", draft_vocab, hidden, "bf16")
    tensors |= {
        "norm.weight": ("BF16", (hidden,)),
        "d2t": ("I64", (draft_vocab,)),
        "t2d": ("BOOL", (vocab,)),
    }
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inter,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": 128,
        "draft_vocab_size": draft_vocab,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
    ckpt = Checkpoint(name, config, tensors)
    return Net(
        ckpt, "midlayer.", ("attn",), hidden, heads, kv, 128, "lm_head", False, extra={"fc": "fc"}
    )


def draft_head(name: str, rows: int, hidden: int, vocab: int, fmt: str) -> Checkpoint:
    """A reduced output layer with its id map."""
    tensors = {"d2t": ("I64", (rows,))} | linear_tensors("lm_head", rows, hidden, fmt)
    config = {
        "model_type": "draft_head",
        "draft_vocab_size": rows,
        "hidden_size": hidden,
        "vocab_size": vocab,
    }
    return Checkpoint(name, config, tensors)


@cache
def net(name: str) -> Net:
    """A target or drafter of the family by name."""
    return NETS[name]()


@cache
def head(name: str) -> Checkpoint:
    """A draft head of the family by name."""
    return HEADS[name]()


def _given_drafter(name: str, fmt: str) -> Net:
    own = block_drafter(name, 5, 5120, 17408, 248320, 5, fmt)
    published = given(name)
    if published is None:
        return own
    return Net(published, own.prefix, own.kinds, 5120, 32, 8, 128, None, extra=own.extra)


NETS = {
    "hybrid27-nvfp4": lambda: hybrid27("nvfp4"),
    "hybrid27-fp8": lambda: hybrid27("fp8"),
    "hybrid27-bf16": lambda: hybrid27("bf16"),
    "hybrid4": lambda: hybrid("hybrid4", 32, 2560, 9216, 16, 4, 248320, tied=True, mtp=True),
    "next-small": lambda: hybrid(
        "next-small",
        24,
        2048,
        6144,
        16,
        2,
        151936,
        "fp8-block",
        fused=True,
        prefix="model.",
        mtp=False,
    ),
    "llama8": lambda: dense("llama8", 32, 4096, 14336, 32, 8, 128, 128256, shards=4),
    "llama8-fp8": lambda: dense("llama8-fp8", 32, 4096, 14336, 32, 8, 128, 128256, "fp8"),
    "qwen4-tied": lambda: dense(
        "qwen4-tied", 36, 2560, 9728, 32, 8, 128, 151936, tied=True, qk_norm=True
    ),
    "qwen8": lambda: dense("qwen8", 36, 4096, 12288, 32, 8, 128, 151936, qk_norm=True, shards=5),
    "qwen8-nvfp4": lambda: dense(
        "qwen8-nvfp4", 36, 4096, 12288, 32, 8, 128, 151936, "nvfp4-modelopt", qk_norm=True
    ),
    "llama70-fp8": lambda: dense(
        "llama70-fp8", 80, 8192, 28672, 64, 8, 128, 128256, "fp8", shards=15
    ),
    "qwen06-tied": lambda: dense(
        "qwen06-tied", 28, 1024, 3072, 16, 8, 128, 151936, tied=True, qk_norm=True
    ),
    "llama1-tied": lambda: dense("llama1-tied", 16, 2048, 8192, 32, 8, 64, 128256, tied=True),
    "moe30": lambda: moe("moe30", 48, 2048, 768, 128, 8),
    "moe-fused": lambda: moe("moe-fused", 40, 2048, 512, 256, 8, shared=512, fused=True),
    "drafter-bf16": lambda: _given_drafter("drafter-bf16", "bf16"),
    "drafter-nvfp4": lambda: _given_drafter("drafter-nvfp4", "nvfp4"),
    "dflash-8": lambda: block_drafter(
        "dflash-8", 8, 4096, 12288, 151936, 5, "nvfp4-modelopt", v2=False
    ),
    "dflash2-2": lambda: block_drafter("dflash2-2", 2, 5120, 17408, 248320, 3, "nvfp4"),
    "eagle3-llama8": lambda: eagle3("eagle3-llama8", 4096, 14336, 32, 8, 32000, 128256),
}

HEADS = {
    "drafthead-fp8": lambda: (
        given("drafthead-fp8") or draft_head("drafthead-fp8", 100032, 5120, 248320, "fp8")
    ),
    "drafthead-32k": lambda: draft_head("drafthead-32k", 32768, 4096, 151936, "bf16"),
}
