"""How many ranks share a model, by the names of collectives and the devices at work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracebook.kernels.collectives import check_ranks, ranks_in_names

from .toy import plan

VLLM = (
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)2>(vllm::RankData *, int)",
    "void vllm::cross_device_reduce_2stage<half, 8>(vllm::RankData *, vllm::RankSignals)",
)
FUSION = (
    "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport"
    "<(int)1, __nv_bfloat16, (int)4, (bool)1>(int)"
)
OLDER = "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, (int)2, (bool)0>(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


@pytest.mark.parametrize(("names", "ranks"), [
    ([VLLM[0]], 2),
    ([VLLM[1]], 8),
    ([FUSION], 4),
    ([OLDER], 2),
    ([VLLM[0], OLDER, NCCL], 2),
    ([VLLM[0], VLLM[1]], None),  # two answers are none
    ([NCCL], None),
    ([], None),
])  # fmt: skip
def test_names_tell_the_ranks(names, ranks):
    assert ranks_in_names(names) == ranks


@pytest.mark.parametrize(("said", "collective", "told", "devices", "code"), [
    (1, False, None, 1, None),
    (1, None, None, 4, None),  # four whole models, or four ranks: not told
    (2, True, 2, 2, None),
    (2, True, 2, 4, None),  # two models of two ranks
    (2, True, None, 2, None),
    (2, False, None, 1, "no_rank_collectives"),
    (4, True, 2, 2, "ranks_unlike"),
    (4, True, 2, 1, "ranks_unlike"),
    (4, True, 2, None, "ranks_unlike"),
    (4, True, 2, 4, None),  # collectives in two stages
    (1, True, 4, 2, "ranks_unlike"),
    (4, None, None, 2, "ranks_missing"),
    (4, None, None, 1, None),  # one rank was recorded
    (4, None, None, None, None),
])  # fmt: skip
def test_ranks_are_held_against_what_tells(said, collective, told, devices, code):
    notice = check_ranks(replace(plan(), ranks=said), collective, told, devices)
    assert (None if notice is None else notice.code) == code
