"""Where the logical shape [n, k] of a packed matrix can be read in its stored tensors.

One function a layout. In: the tensors of a module by suffix, options of the format,
config.json. Out: `Logical`, or None where the shapes do not fit the layout. A size
that the headers and the config leave open stays None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sibling:
    """One tensor of a module: its suffix with joint (`.weight`), dtype and stored shape."""

    suffix: str
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class Logical:
    """A stack of `count` matrices of n rows and k columns; None where not known.

    `params` is set where only the product is known.
    """

    n: int | None
    k: int | None
    count: int = 1
    params: int | None = None

    @property
    def weights(self) -> int | None:
        """Logical weights of the whole stack."""
        if self.params is not None or self.n is None or self.k is None:
            return self.params
        return self.n * self.k * self.count


Tensors = Mapping[str, Sibling]
Options = Mapping[str, Any]
Config = Mapping[str, Any]
UNKNOWN_SIZE = Logical(None, None)


def plain(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """Any shape: a vector has neither n nor k, a convolution n and the rest."""
    shape = tensors[options["main"]].shape
    if len(shape) < 2:
        return Logical(None, None, params=math.prod(shape))
    return Logical(shape[0], math.prod(shape[1:]))


def stack(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """[n, k], or a stack [..., n, k]."""
    shape = tensors[options["main"]].shape
    if len(shape) < 2:
        return None
    return Logical(shape[-2], shape[-1], math.prod(shape[:-2]))


def packed_bytes(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """[..., n, k / per_byte] of bytes."""
    found = stack(tensors, options, config)
    if found is None or found.k is None:
        return None
    return Logical(found.n, found.k * int(options["per_byte"]), found.count)


def blocks(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """[experts, n, blocks, bytes of a block]."""
    shape = tensors[options["main"]].shape
    if len(shape) != 4:
        return None
    return Logical(shape[1], shape[2] * shape[3] * int(options["per_byte"]), shape[0])


def flat_bytes(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """[n * k / per_byte, 1]: only the product is known."""
    shape = tensors[options["main"]].shape
    if len(shape) != 2 or 1 not in shape:
        return None
    return Logical(None, None, params=math.prod(shape) * int(options["per_byte"]))


def int_packed(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """[n, ceil(k * bits / 32)] of 32-bit words; k from the group index, groups or bits.

    `weight_shape` holds n and k as values, which headers do not show.
    """
    shape = tensors[options["main"]].shape
    if len(shape) < 2:
        return None
    n, words = shape[-2:]
    count = math.prod(shape[:-2])
    if ".weight_g_idx" in tensors:
        return Logical(n, math.prod(tensors[".weight_g_idx"].shape), count)
    candidates = {
        k
        for bits, group in _int_schemes(config)
        if (k := _packed_columns(words, bits, group, tensors[".weight_scale"].shape)) is not None
    }
    return Logical(n, candidates.pop() if len(candidates) == 1 else None, count)


def _packed_columns(words: int, bits: int, group: int | None, scale: Shape) -> int | None:
    """Columns of a packed row under one scheme, None where the shapes contradict it."""
    if group is None or group <= 0:
        return words * 32 // bits if all(size == 1 for size in scale[1:]) else None
    k = scale[-1] * group
    return k if -(-k * bits // 32) == words else None


def _int_schemes(config: Config) -> Iterator[tuple[int, int | None]]:
    """Bits and group size of every integer scheme that the config names."""
    quantization = config.get("quantization_config") or config.get("compression_config") or {}
    groups = quantization.get("config_groups") or {}
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") or {} if isinstance(group, Mapping) else {}
        bits, size = weights.get("num_bits"), weights.get("group_size")
        if type(bits) is int and 1 <= bits <= 8:
            yield bits, size if type(size) is int else None


def bitmask(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """One bit per weight: [n, k / 8] of bytes."""
    shape = tensors[".bitmask"].shape
    return Logical(shape[0], shape[1] * 8) if len(shape) == 2 else None


def gptq(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """[k * bits / 32, n]; k from the group index, else from the config's bits."""
    shape, scales = tensors[options["main"]].shape, tensors[".scales"].shape
    if len(shape) != 2 or scales[-1:] != shape[1:]:
        return None
    index = tensors[".g_idx"].shape if ".g_idx" in tensors else ()
    if len(index) == 1 and index[0]:
        return Logical(shape[1], index[0])
    bits = _config_bits(config)
    return Logical(shape[1], shape[0] * 32 // bits if bits else None)


def awq(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """[k, n * bits / 32]; n from the scales."""
    shape, scales = tensors[options["main"]].shape, tensors[".scales"].shape
    if len(shape) != 2 or len(scales) != 2 or scales[1] <= shape[1]:
        return None
    return Logical(scales[1], shape[0])


def _config_bits(config: Config) -> int | None:
    quantization = config.get("quantization_config") or {}
    bits = quantization.get("bits", quantization.get("w_bit"))
    return bits if type(bits) is int and 1 <= bits <= 8 else None


def torchao(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """One byte a weight for FP8, and for integers with one scale a row; else open."""
    data, scale = tensors[options["main"]], tensors["._weight_scale"]
    if len(data.shape) != 2:
        return None
    per_row = scale.shape in ((data.shape[0],), (data.shape[0], 1))
    if data.dtype.startswith("F8_") or (data.dtype == "I8" and per_row):
        return Logical(data.shape[0], data.shape[1])
    return UNKNOWN_SIZE


def hqq(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """One scale a group: the product follows from the config's group size."""
    weights: Any = config.get("quantization_config") or {}
    for key in ("quant_config", "weight_quant_params"):
        weights = weights.get(key) or weights
    group = weights.get("group_size")
    if type(group) is not int or group <= 0:
        return UNKNOWN_SIZE
    return Logical(None, None, params=math.prod(tensors[".scale"].shape) * group)


#: Group size of MLX's modes without biases.
_MLX_GROUPS = {"mxfp4": 32, "mxfp8": 32, "nvfp4": 16}


def mlx(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """[n, k * bits / 32] of 32-bit words; k from the scales and the config's group size."""
    shape, scales = tensors[options["main"]].shape, tensors[".scales"].shape
    if len(shape) < 2 or scales[:-1] != shape[:-1]:
        return None
    n, count = shape[-2], math.prod(shape[:-2])
    quantization = config.get("quantization") or config.get("quantization_config") or {}
    group = _MLX_GROUPS.get(quantization.get("mode", ""), quantization.get("group_size"))
    if type(group) is not int or group <= 0:
        return Logical(n, None, count)
    k = scales[-1] * group
    # The words must hold a whole number of bits per weight, else the module overrides the group.
    whole = k > 0 and shape[-1] * 32 % k == 0 and 1 <= shape[-1] * 32 // k <= 8
    return Logical(n, k if whole else None, count)


def exl3(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """[k / 16, n / 16, 16 * bits]; k and n from the sign vectors."""
    shape = tensors[options["main"]].shape
    k, n = math.prod(tensors[".suh"].shape), math.prod(tensors[".svh"].shape)
    if len(shape) != 3 or (shape[0] * 16, shape[1] * 16) != (k, n):
        return None
    return Logical(n, k)


def unknown_size(tensors: Tensors, options: Options, config: Config) -> Logical | None:
    """A known format whose headers do not tell its logical size."""
    return UNKNOWN_SIZE


LAYOUTS: dict[str, Callable[[Tensors, Options, Config], Logical | None]] = {
    "plain": plain,
    "stack": stack,
    "packed_bytes": packed_bytes,
    "blocks": blocks,
    "flat_bytes": flat_bytes,
    "int_packed": int_packed,
    "bitmask": bitmask,
    "gptq": gptq,
    "awq": awq,
    "torchao": torchao,
    "hqq": hqq,
    "mlx": mlx,
    "exl3": exl3,
    "unknown_size": unknown_size,
}
