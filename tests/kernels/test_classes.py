"""Classes from names: order of rules, traps of substrings, files of the user."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracebook.errors import RuleError
from tracebook.kernels.classes import (
    CLASSES,
    MATCHED_CHARACTERS,
    builtin_rules,
    check_examples,
    classify_names,
    load_rules,
    parse_json_rules,
    parse_rules,
)
from tracebook.trace import NAME_SCHEMA


def name_frame(names):
    rows = [(number, name, name) for number, name in enumerate(names)]
    return pl.DataFrame(rows, schema=NAME_SCHEMA, orient="row")


def classes_of(names, rules=None):
    found = classify_names(name_frame(names), builtin_rules() if rules is None else rules)
    return found["kernel_class"].to_list()


def rule(pattern, kernel_class, example="", **more):
    lines = {"class": kernel_class, "pattern": pattern, "example": example} | more
    return "[[rule]]\n" + "\n".join(f"{key} = '{value}'" for key, value in lines.items()) + "\n"


#: Names that contain the key word of another class, and what they are.
TRAPS = [
    ("void vllm::cvt_fp16_to_fp4<__nv_bfloat16, (bool)0>(int, int)", "quantize"),
    ("void vllm::silu_mul_cvt_fp16_to_fp4<__nv_bfloat16, (bool)0>(int, int)", "activation"),
    ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<256, 64>>(T)", "attention"),
    ("void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<256>>(T)", "attention"),
    ("fused_recurrent_gated_delta_rule_packed_decode_kernel", "gdn"),
    ("fused_recurrent_gated_delta_rule_fwd_kernel", "gdn"),
    ("_causal_conv1d_update_kernel", "conv"),
    ("causal_conv1d_update_kernel", "conv"),
    ("_causal_conv1d_fwd_kernel", "conv"),
    ("triton_poi_fused_add_arange_bitwise_and_constant_pad_nd_fused_add_rms_norm_3", "conv"),
    ("triton_red_fused__to_copy_add_copy__fused_add_rms_norm_scaled_fp4_quant_1", "norm"),
    ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<CollectiveMainloopFwd>>(T)", "attention"),
    ("_resample_kernel", "verify"),
    ("_gumbel_sample_kernel", "sample"),
    ("void vllm::moe::topkGatingSoftmax<float, 8, 128>(T)", "moe"),
    ("_selector_walk_kernel", "select"),
    ("_cache_draft_logits_kernel", "select"),
    ("_commit_gdn_state_kernel", "replay"),
    ("prepare_commit_plan_kernel", "replay"),
    ("compact_conv_state_kernel", "replay"),
    ("void flashinfer::GdnDecodeUCacheFlushKernel<128>(T)", "replay"),
    ("void flashinfer::GdnDecodeUCacheKernel<128>(T)", "gdn"),
    ("_gdn_recoverssm_verify_kernel", "gdn"),
    ("gdn_verify_kernel_mtp_inline", "gdn"),
    ("_rejection_kernel", "verify"),
    ("rejection_greedy_sample_kernel", "verify"),
    ("_prepare_dflash_inputs_kernel", "draft_prepare"),
    ("eagle_prepare_inputs_padded_kernel", "draft_prepare"),
    ("eagle_step_slot_mapping_metadata_kernel", "draft_prepare"),
    ("_combine_sampled_and_draft_tokens_kernel", "prepare"),
    ("_compute_slot_mappings_kernel", "prepare"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(T)", "splitk_reduce"),
    ("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", "gemm"),
    ("nvjet_sm121_tst_mma_128x208x64_2_32x104x64_tmaAB_bz_TNNN", "gemm"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64>(T)", "gemm"),
    ("std::enable_if<1, void>::type internal::gemvx::kernel<int, int, float>(T)", "gemm"),
    ("_nvfp4_rows_gemv_kernel", "gemm"),
    ("void marlin_moe_wna16::Marlin<128, 1, 8, 4>(T)", "gemm"),
    ("void mul_mat_vec_q<(ggml_type)12, 1>(const void *)", "gemm"),
    ("void mul_mat_q_stream_k_fixup<(ggml_type)12>(const int *)", "splitk_reduce"),
    ("quantize_q8_1(const float *, void *)", "quantize"),
    ("void quantize_mmq_q8_1<(mmq_q8_1_ds_layout)0>(const float *)", "quantize"),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(T)", "kv_write"),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<T>>(T)", "activation"),
    ("void k_get_rows_float<float, float>(const T1 *)", "embed"),
    ("void gated_delta_net_cuda<128, false, true>(T)", "gdn"),
    ("void ssm_conv_f32<128, 4>(const float *)", "conv"),
    ("void flash_attn_ext_vec<128, 1>(const char *)", "attention"),
    ("void flash_attn_stream_k_fixup<128, 8>(float *)", "attention"),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)", "comm"),
    ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<T>()",
     "comm"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>()", "fill"),
    ("void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>(int)", "copy"),
    ("void at::native::CatArrayBatchedCopy_vectorized<T, uint, 2>(T)", "copy"),
    ("void at::native::reduce_kernel<512, 1, at::native::ArgMaxOps<float>>(T)", "sample"),
    ("device_kernel", "unknown"),
    ("Kernel2", "unknown"),
    ("kernel", "unknown"),
    ("", "unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kernel_class"), TRAPS, ids=[n[:60] or "empty" for n, _ in TRAPS])
def test_substrings_do_not_mislead(name, kernel_class):
    assert classes_of([name]) == [kernel_class]


@pytest.mark.parametrize(
    "name",
    [
        "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
        "_causal_conv1d_fwd_kernel",
        "chunk_local_cumsum_scalar_kernel",
        "recompute_w_u_fwd_kernel",
        "merge_16x16_to_64x64_inverse_kernel",
        "_prepare_prefill_inputs_kernel",
    ],
)
def test_prefill_kernels_carry_their_marker(name):
    assert classify_names(name_frame([name]), builtin_rules())["marker"][0] == "prefill"


@pytest.mark.parametrize(
    "name",
    [
        "fused_recurrent_gated_delta_rule_packed_decode_kernel",
        "_causal_conv1d_update_kernel",
        "fused_sigmoid_gating_delta_rule_update_kernel",
        "void vllm::rms_norm_kernel<c10::BFloat16>(T)",
    ],
)
def test_decode_kernels_carry_none(name):
    assert classify_names(name_frame([name]), builtin_rules())["marker"][0] is None


def test_every_shipped_example_matches_its_own_rule_first():
    rules = builtin_rules()
    check_examples(rules)
    assert all(rule.example for rule in rules)
    assert len({rule.origin for rule in rules}) == len(rules)


def test_every_class_has_a_rule():
    """`unknown` too: names that look as if they told something, and do not."""
    assert {rule.kernel_class for rule in builtin_rules()} == set(CLASSES)


def test_the_first_of_two_rules_wins():
    rules = parse_rules(rule("alpha", "norm") + rule("alpha_beta", "copy"), "a.toml")
    assert classes_of(["x_alpha_beta", "ALPHA", "beta"], rules) == ["norm", "norm", "unknown"]


def test_rows_come_back_in_the_order_of_the_names():
    names = ["_rejection_kernel", "kernel", "_rejection_kernel", "quantize_q8_1"]
    found = classify_names(name_frame(names), builtin_rules())
    assert found["name_id"].to_list() == [0, 1, 2, 3]
    assert found["kernel_class"].to_list() == ["verify", "unknown", "verify", "quantize"]
    assert found["rule"][1] is None
    assert found["rule"][0].startswith("10-vllm.toml, rule ")


def test_no_names_no_rows():
    assert classify_names(name_frame([]), builtin_rules()).is_empty()


def test_endless_names_are_cut_before_matching():
    padding = "T, " * MATCHED_CHARACTERS
    assert classes_of([f"f<{padding}> rms_norm_kernel", f"rms_norm_kernel<{padding}>"]) == [
        "unknown",
        "norm",
    ]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=8))
def test_any_text_gets_one_known_class(names):
    found = classes_of(names)
    assert len(found) == len(names)
    assert set(found) <= set(CLASSES)


@settings(max_examples=10, deadline=None)
@given(st.permutations([name for name, _ in TRAPS[:20]]))
def test_the_class_does_not_depend_on_other_names(order):
    expected = dict(TRAPS)
    assert classes_of(order) == [expected[name] for name in order]


def test_rules_of_the_user_come_first(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(rule("rms_norm", "quantize", "my_rms_norm"))
    assert classes_of(["vllm::rms_norm_kernel"]) == ["norm"]
    assert classes_of(["vllm::rms_norm_kernel"], load_rules(mine)) == ["quantize"]
    assert load_rules(mine)[1:] == builtin_rules()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (rule("ok", "norm", "ok") + rule("x", "banana", "x"), r"rule 2: no class 'banana'"),
        (rule("(", "norm", "("), r"rule 1: the pattern is not a valid regular expression"),
        (rule("(?=a)a", "norm", "a"), r"rule 1: the pattern is not a valid regular"),
        (rule("a", "norm", "a", marker="late"), r"rule 1: no marker 'late'"),
        (rule("a", "norm", "a", klass="gemm"), r"rule 1: unknown key klass"),
        ("[[rule]]\nclass = 'norm'\npattern = 'a'\n", r"rule 1: missing key example"),
        (rule("a", "norm", "a") + rule("ab", "copy", "ab"), r"rule 2: the example 'ab' is taken by"
         r" mine.toml, rule 1"),
        (rule("a", "norm", "b"), r"rule 1: the example 'b' is not matched"),
        ("[[rule]\n", r"not valid TOML"),
    ],
)  # fmt: skip
def test_a_bad_rule_is_named_by_file_and_number(tmp_path, text, says):
    mine = tmp_path / "mine.toml"
    mine.write_text(text)
    with pytest.raises(RuleError, match=says) as caught:
        load_rules(mine)
    assert "mine.toml" in caught.value.message


def test_a_missing_rule_file_is_named(tmp_path):
    with pytest.raises(RuleError, match=r"none\.toml"):
        load_rules(tmp_path / "none.toml")


def test_json_rules_of_gputrc2graph(tmp_path):
    """The nesting of vLLM's profiling tool: engine, model, pattern to category."""
    mine = tmp_path / "vllm.json"
    mine.write_text(
        json.dumps(
            {
                "vllm": {
                    "llama": {
                        "gemm|nvjet": "gemm",
                        "_my_moe_": "moe_gemm",
                        "rms_tweak": "layer norm",
                        "cross_device_sum": "nccl_and_custom_ar",
                        "^attn_magic": "attn",
                        "CUDA mem": "non-gpu-H_D_memops",
                    }
                }
            }
        )
    )
    rules = load_rules(mine)
    assert len(rules) == len(builtin_rules()) + 5
    names = ["x_rms_tweak", "cross_device_sum_4", "attn_magic", "nvjet_1", "_rejection_kernel"]
    assert classes_of(names, rules) == ["norm", "comm", "attention", "gemm", "verify"]


@pytest.mark.parametrize("text", ["{}", "[1, 2]", '"gemm"', '{"a": {"b": "weather"}}'])
def test_json_without_rules_is_refused(text):
    with pytest.raises(RuleError, match=r"x\.json holds no rule"):
        parse_json_rules(text, "x.json")


@pytest.mark.parametrize(
    ("text", "says"), [("{", "not valid JSON"), ('{"e": {"(": "gemm"}}', r"x\.json/e.*'\('")]
)
def test_bad_json_is_refused_with_its_place(text, says):
    with pytest.raises(RuleError, match=says):
        parse_json_rules(text, "x.json")
