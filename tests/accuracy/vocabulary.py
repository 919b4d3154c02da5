# ruff: noqa: E501 - kernel names are as long as they are
"""Names, grids and blocks of kernels: real ones, renamed ones, and ones that say nothing."""

from __future__ import annotations

import math
import random
import tomllib
import zlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .program import Op

GENERIC_GEMM = ("device_kernel", "Kernel2", "kernel")
GENERIC_GLUE = (
    "elementwise_kernel",
    "vectorized_elementwise_kernel",
    "unrolled_elementwise_kernel",
    "reduce_kernel",
    "kernel",
)
GEMM_LIKE = ("gemm", "attn", "moe", "gdn", "gdn_verify", "gdn_recover")


@dataclass(frozen=True)
class Kernel:
    """A kernel as CUPTI would see it; `us` is its time without weights and traffic."""

    name: str
    short: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    us: float
    main: bool = True  # carries the op's traffic and weights


@cache
def table() -> dict[str, dict[str, list[str]]]:
    path = Path(__file__).with_name("names.toml")
    return tomllib.loads(path.read_text())


def stable(text: str) -> int:
    """A hash that is the same in every process."""
    return zlib.crc32(text.encode())


def short_name(name: str) -> str:
    """Base name of a demangled one: no arguments, templates, namespaces."""
    head = name.replace("(anonymous namespace)::", "").split("<")[0].split("(")[0]
    return head.split()[-1].split("::")[-1]


@dataclass
class Vocabulary:
    """Names of one case: an engine's own, "renamed", or "generic"."""

    engine: str
    variant: str = "real"
    sms: int = 132
    persistent: bool = False
    seed: int = 0
    _memo: dict = field(default_factory=dict)

    def kernels(self, op: Op) -> list[Kernel]:
        """Kernels that run for one op, in order."""
        key = (op.what, op.n, op.k, op.fmt, op.rows, op.alternative, op.traffic > 0)
        if key not in self._memo:
            self._memo[key] = self._make(op)
        return self._memo[key]

    def _make(self, op: Op) -> list[Kernel]:
        if op.what == "gemm":
            found = [self._gemm(op)]
        else:
            entries = self._entries(op.what)
            times = [float(entry.rpartition(" @")[2]) for entry in entries]
            main = times.index(max(times)) if times else 0
            found = [self._glue(op, e, i == main) for i, e in enumerate(entries)]
        return [self._generic(op, k) for k in found] if self.variant == "generic" else found

    def _entries(self, what: str) -> list[str]:
        style = self._style(what)
        out = []
        for entry in style:
            out += self._entries(entry[1:]) if entry.startswith("=") else [entry]
        return out

    def _style(self, what: str) -> list[str]:
        own = table()[self.engine].get(what)
        if self.variant == "renamed" and own != []:
            return table()["renamed"].get(what) or own or table()["vllm"][what]
        return table()["vllm"][what] if own is None else own

    def _glue(self, op: Op, entry: str, main: bool) -> Kernel:
        name, _, us = entry.rpartition(" @")
        name, _, short = name.partition(" | ")
        seed = stable(name + op.what)
        grid = (op.rows, 1, 1)
        if op.what in ("attn", "combine"):
            grid = (op.rows, 8 if op.what == "attn" else 1, 1 + seed % 7 + op.alternative)
        elif op.what.startswith("gdn") or op.what == "commit":
            grid = (4, op.rows if "recover" in op.what else 1, 48)
        elif op.what == "moe":
            grid = (512 * (1 if op.op == "experts_up" else 2), 1, 1)
        elif seed % 3:
            grid = (1 + op.rows * (seed % 61), 1, 1)
        block = (32 << (seed >> 4) % 6, 1, 1)
        if self.variant == "renamed":
            grid = (grid[0] * 2, grid[1], grid[2])
        return Kernel(name, short or short_name(name), grid, block, float(us), main)

    def _generic(self, op: Op, kernel: Kernel) -> Kernel:
        pool = GENERIC_GEMM if op.what in GEMM_LIKE else GENERIC_GLUE
        name = pool[stable(kernel.name + str(self.seed)) % len(pool)]
        return Kernel(name, name, kernel.grid, kernel.block, kernel.us, kernel.main)

    def _gemm(self, op: Op) -> Kernel:
        rng = random.Random(f"{self.seed}/{op.fmt}/{op.n}/{op.k}/{op.alternative}/{op.rows > 8}")
        if self.variant == "renamed":
            return self._renamed_gemm(op, rng)
        if self.engine == "llamacpp":
            return self._llamacpp(op, rng)
        return {"nvfp4": self._nvfp4, "fp8": self._fp8, "bf16": self._bf16}[op.fmt](op, rng)

    def _tiles(self, op: Op, tile: int, rng: random.Random) -> tuple[int, int, int]:
        if self.persistent:
            return (self.sms, 1, 1)
        tiles = math.ceil(op.n / tile)
        return (tiles, 1, 1) if rng.random() < 0.6 else (1, tiles, 1)

    def _nvfp4(self, op: Op, rng: random.Random) -> Kernel:
        if self.engine == "trtllm" and op.rows <= 16:
            tile = rng.choice((2, 4))
            name = f"void tensorrt_llm::kernels::cuda_core_gemm_nvfp4::cudaCoreGemmFp4<__nv_fp4_e2m1, __nv_bfloat16, (unsigned int){op.rows}, (unsigned int){tile}, (unsigned int)128>(const T1 *, const T1 *)"
            return Kernel(name, "cudaCoreGemmFp4", (op.n // tile, 1, 1), (128, 1, 1), 0.0)
        m, n = rng.choice(((128, 32), (128, 64), (128, 128), (256, 128), (128, 256)))
        deep = rng.choice((128, 256))
        scheduler = "StreamKScheduler" if rng.random() < 0.4 else "StaticPersistentScheduler"
        name = (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
            f"cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm120TmaWarpSpecializedBlockScaled<(int){rng.randint(2, 4)}, (int)2, "
            f"cute::tuple<cute::C<(int)1>, cute::C<(int)1>, cute::C<(int)1>>>, cute::tuple<cute::C<(int){m}>, cute::C<(int){n}>, cute::C<(int){deep}>>>, "
            f"cutlass::gemm::{scheduler}>>(T1::Params)"
        )
        grid = self._tiles(op, m, rng)
        return Kernel(name, "device_kernel", grid, (384, 1, 1), 0.0)

    def _fp8(self, op: Op, rng: random.Random) -> Kernel:
        tile = rng.choice((32, 64, 128))
        match self.engine:
            case "sglang":
                name, short = "_w8a8_triton_block_scaled_mm", "_w8a8_triton_block_scaled_mm"
                return Kernel(name, short, (math.ceil(op.n / tile), 1, 1), (128, 1, 1), 0.0)
            case "trtllm":
                name = f"bmm_Bfloat16_E4m3E4m3_Fp32_t{tile}x8x256u2_s{rng.randint(3, 6)}_et64x8_m64x8x32_cga1x1x1_16dp256b_rM_TN_transOut_schedS_sm90a"
                return Kernel(name, name, self._tiles(op, tile, rng), (256, 1, 1), 0.0)
        if rng.random() < 0.5:
            name = f"nvjet_sm121_qqtst_{tile}x8_64x{rng.randint(4, 12)}_1x1_v_bz_TNNN"
            return Kernel(name, name, (self.sms, 1, 1), (384, 1, 1), 0.0)
        name = (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
            f"cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm120TmaWarpSpecialized<(int)4, (int)2>, "
            f"cute::tuple<cute::C<(int){tile}>, cute::C<(int)32>, cute::C<(int)128>>, cutlass::float_e4m3_t>>>(T1::Params)"
        )
        return Kernel(name, "device_kernel", self._tiles(op, tile, rng), (256, 1, 1), 0.0)

    def _bf16(self, op: Op, rng: random.Random) -> Kernel:
        kind = rng.random()
        if op.n < 1024 or (self.engine == "hf" and op.rows == 1 and kind < 0.5):
            name = "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, (bool)0, (bool)1, (bool)1, (bool)0, (int)7, (bool)0, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<const __nv_bfloat16>>>(T13)"
            return Kernel(name, "kernel", (math.ceil(op.n / 4), 1, 1), (128, 4, 1), 0.0)
        tile = rng.choice((64, 128, 192, 256))
        if kind < 0.55:
            name = f"nvjet_tst_{tile}x8_64x{rng.randint(3, 16)}_{rng.choice((1, 2, 4))}x1_v_bz_TNT"
            grid = (self.sms, 1, 1) if rng.random() < 0.6 else (math.ceil(op.n / tile), 1, 1)
            return Kernel(name, name, grid, (384, 1, 1), 0.0)
        if kind < 0.8:
            name = f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_{tile}x64_64x{rng.randint(3, 5)}_tn_align8>(T1::Params)"
            return Kernel(name, "Kernel2", (math.ceil(op.n / tile), 1, 1), (128, 1, 1), 0.0)
        name = f"sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize{tile}x64x64_stage3_warpsize2x2x1_tensor16x8x16_kernel"
        return Kernel(name, name, (math.ceil(op.n / tile), 1, 1), (128, 1, 1), 0.0)

    def _llamacpp(self, op: Op, rng: random.Random) -> Kernel:
        if op.fmt == "bf16":
            name = f"void mul_mat_vec_f<__nv_bfloat16, float, (int)1, (int){rng.choice((96, 128, 160, 256))}, (bool)0>(const T1 *, const float *, const int *, float *, int, int, int)"
            return Kernel(name, "mul_mat_vec_f", (op.n, 1, 1), (128, 1, 1), 0.0)
        kind = 40 if op.fmt == "nvfp4" else 8
        name = f"void mul_mat_vec_q<(ggml_type){kind}, (int){op.rows}, (bool)0, (bool)0>(const void *, const void *, const int *, float *, unsigned int)"
        return Kernel(name, "mul_mat_vec_q", (op.n, 1, 1), (32, 4, 1), 0.0)

    def _renamed_gemm(self, op: Op, rng: random.Random) -> Kernel:
        tile = rng.choice((24, 48, 96, 112, 160, 224))
        name = f"void lm::matrix::Multiply<lm::{op.fmt}, (int){tile}, (int){rng.choice((64, 128))}, (int){rng.randint(2, 9)}>(lm::Args)"
        return Kernel(
            name, "Multiply", self._tiles(op, tile, rng), (rng.choice((128, 256, 384)), 1, 1), 0.0
        )
