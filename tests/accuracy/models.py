"""Checkpoints as header data: built from shapes, or read from a given header bundle."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

ITEM_BYTES = {"BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "BOOL": 1, "F32": 4, "I64": 8}
HEADERS = Path(__file__).resolve().parents[3] / "shared" / "reference" / "headers"

Tensors = dict[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Checkpoint:
    """Tensors (name to dtype and shape) and config of one checkpoint."""

    name: str
    config: dict
    tensors: Tensors
    shards: int = 1

    def tensor_bytes(self, name: str) -> int:
        dtype, shape = self.tensors[name]
        return ITEM_BYTES[dtype] * math.prod(shape)

    @cached_property
    def _modules(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self.tensors:
            found.setdefault(name.rpartition(".")[0], []).append(name)
        return found

    def parts(self, module: str) -> list[str]:
        """Tensors of a module: its siblings, or the tensor of that very name."""
        if module in self._modules:
            return self._modules[module]
        if module in self.tensors:
            return [module]
        raise KeyError(module)

    def has(self, module: str) -> bool:
        return module in self._modules or module in self.tensors

    def module_bytes(self, module: str) -> int:
        return sum(self.tensor_bytes(name) for name in self.parts(module))

    def linear(self, module: str) -> Linear:
        """Logical shape and format of a linear module, from its tensors."""
        parts = {name[len(module) + 1 :]: self.tensors[name] for name in self.parts(module)}
        size = self.module_bytes(module)
        if "weight_packed" in parts or parts.get("weight", ("",))[0] == "U8":
            n, half = parts.get("weight_packed", parts.get("weight"))[1]
            return Linear(module, n, 2 * half, "nvfp4", size)
        dtype, shape = parts.get("weight", next(iter(parts.values())))
        fmt = "fp8" if dtype == "F8_E4M3" else "bf16"
        return Linear(module, math.prod(shape[:-1]), shape[-1], fmt, size)

    def bundle(self) -> dict:
        """The header bundle: files, config and index."""
        total = sum(map(self.tensor_bytes, self.tensors))
        limit, groups, filled = math.ceil(total / self.shards), [{}], 0
        for name in self.tensors:
            if filled > limit * len(groups) and len(groups) < self.shards:
                groups.append({})
            groups[-1][name] = self.tensors[name]
            filled += self.tensor_bytes(name)
        files, weight_map = {}, {}
        for number, group in enumerate(groups, 1):
            one = len(groups) == 1
            file = (
                "model.safetensors" if one else f"model-{number:05}-of-{len(groups):05}.safetensors"
            )
            files[file] = self._file(group)
            weight_map |= dict.fromkeys(group, file)
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        return {"files": files, "config": self.config, "index": index if len(groups) > 1 else None}

    def _file(self, group: Tensors) -> dict:
        header, offset = {"__metadata__": {"format": "pt"}}, 0
        # safetensors lays out the widest dtypes first, then by name
        for name in sorted(group, key=lambda name: (-ITEM_BYTES[group[name][0]], name)):
            dtype, shape = group[name]
            end = offset + self.tensor_bytes(name)
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(header, separators=(",", ":"))
        return {"size": 8 + (len(text) + 7) // 8 * 8 + offset, "header": header}

    def save(self, folder: Path) -> Path:
        path = folder / f"{self.name}.headers.json.gz"
        if not path.exists():
            raw = json.dumps(self.bundle(), separators=(",", ":")).encode()
            path.write_bytes(gzip.compress(raw, 6, mtime=0))
        return path


@dataclass(frozen=True)
class Linear:
    """A weight matrix: N output rows, K inputs, format, bytes of all its tensors."""

    path: str
    n: int
    k: int
    fmt: str
    nbytes: int


@dataclass(frozen=True)
class GivenBundle(Checkpoint):
    """A checkpoint whose bundle file is copied as it stands."""

    source: Path = Path()

    def save(self, folder: Path) -> Path:
        path = folder / f"{self.name}.headers.json.gz"
        if not path.exists():
            path.write_bytes(self.source.read_bytes())
        return path


def linear_tensors(path: str, n: int, k: int, fmt: str) -> Tensors:
    """Tensors of one linear module in a quantisation format."""
    match fmt:
        case "bf16":
            return {f"{path}.weight": ("BF16", (n, k))}
        case "nvfp4":
            return {
                f"{path}.weight_packed": ("U8", (n, k // 2)),
                f"{path}.weight_scale": ("F8_E4M3", (n, k // 16)),
                f"{path}.weight_global_scale": ("F32", (1,)),
                f"{path}.input_global_scale": ("F32", (1,)),
            }
        case "nvfp4-modelopt":
            return {
                f"{path}.weight": ("U8", (n, k // 2)),
                f"{path}.weight_scale": ("F8_E4M3", (n, k // 16)),
                f"{path}.weight_scale_2": ("F32", ()),
                f"{path}.input_scale": ("F32", ()),
            }
        case "fp8":
            return {
                f"{path}.weight": ("F8_E4M3", (n, k)),
                f"{path}.weight_scale": ("BF16", (n, 1)),
            }
        case "fp8-block":
            blocks = (math.ceil(n / 128), math.ceil(k / 128))
            return {
                f"{path}.weight": ("F8_E4M3", (n, k)),
                f"{path}.weight_scale_inv": ("BF16", blocks),
            }
    raise ValueError(fmt)


@dataclass(frozen=True)
class Net:
    """What an engine must know of a model to run it."""

    ckpt: Checkpoint
    prefix: str  # of a layer, with {i}
    kinds: tuple[str, ...]  # "gdn" or "attn" for each layer
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    head: str | None  # module read as the output layer
    qk_norm: bool = True
    gated: bool = False  # attention output gate
    experts: int = 0
    top_k: int = 0
    state_bytes: int = 0  # one recurrent state of one layer, BF16
    extra: dict = field(default_factory=dict)

    def linear(self, i: int, rel: str) -> Linear:
        return replace(self.ckpt.linear(self.prefix.format(i=i) + rel), path=rel)

    def has(self, i: int, rel: str) -> bool:
        return self.ckpt.has(self.prefix.format(i=i) + rel)

    @property
    def vocab(self) -> int:
        return self.ckpt.linear(self.head).n if self.head else 0


def attention_tensors(
    p: str, hidden: int, heads: int, kv: int, dim: int, fmt: str, **more
) -> Tensors:
    """q, k, v, o and the norms of one attention layer."""
    wide = more.get("q_in", hidden)
    gate = 2 if more.get("gated") else 1
    out = linear_tensors(f"{p}self_attn.q_proj", heads * dim * gate, wide, fmt)
    out |= linear_tensors(f"{p}self_attn.k_proj", kv * dim, wide, fmt)
    out |= linear_tensors(f"{p}self_attn.v_proj", kv * dim, wide, fmt)
    out |= linear_tensors(f"{p}self_attn.o_proj", hidden, heads * dim, fmt)
    if more.get("qk_norm", True):
        out |= {f"{p}self_attn.{x}_norm.weight": ("BF16", (dim,)) for x in "qk"}
    norms = ("input_layernorm", "post_attention_layernorm", *more.get("norms", ()))
    return out | {f"{p}{norm}.weight": ("BF16", (hidden,)) for norm in norms}


def mlp_tensors(p: str, hidden: int, inter: int, fmt: str) -> Tensors:
    """gate, up, down."""
    out = linear_tensors(f"{p}gate_proj", inter, hidden, fmt)
    out |= linear_tensors(f"{p}up_proj", inter, hidden, fmt)
    return out | linear_tensors(f"{p}down_proj", hidden, inter, fmt)


def gdn_tensors(
    p: str, hidden: int, key: int, value: int, heads: int, fmt: str, fused: bool
) -> Tensors:
    """The recurrent layer's projections, split (Qwen3.5) or fused (Qwen3-Next)."""
    q = f"{p}linear_attn."
    if fused:
        out = linear_tensors(f"{q}in_proj_qkvz", 2 * key + 2 * value, hidden, fmt)
        out |= linear_tensors(f"{q}in_proj_ba", 2 * heads, hidden, "bf16")
    else:
        out = linear_tensors(f"{q}in_proj_qkv", 2 * key + value, hidden, fmt)
        out |= linear_tensors(f"{q}in_proj_z", value, hidden, fmt)
        for x in "ab":
            out |= linear_tensors(f"{q}in_proj_{x}", heads, hidden, "bf16")
    out |= linear_tensors(f"{q}out_proj", hidden, value, fmt)
    out[f"{q}conv1d.weight"] = ("BF16", (2 * key + value, 1, 4))
    out |= {f"{q}A_log": ("F32", (heads,)), f"{q}dt_bias": ("BF16", (heads,))}
    out[f"{q}norm.weight"] = ("F32", (value // heads,))
    norms = ("input_layernorm", "post_attention_layernorm")
    return out | {f"{p}{norm}.weight": ("BF16", (hidden,)) for norm in norms}


@cache
def given(name: str) -> GivenBundle | None:
    """One of the six published header bundles, or None where the folder is absent."""
    path = HEADERS / f"{name}.json.gz"
    if not path.exists():
        return None
    data = json.loads(gzip.decompress(path.read_bytes()))
    tensors = {
        tensor: (entry["dtype"], tuple(entry["shape"]))
        for file in data["files"].values()
        for tensor, entry in file["header"].items()
        if tensor != "__metadata__"
    }
    return GivenBundle(name, data["config"], tensors, source=path)
