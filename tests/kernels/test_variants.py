"""Orders in which a mixture of experts may be read."""

from __future__ import annotations

from tracebook.checkpoint.plan import Read
from tracebook.kernels.variants import read_orders

from .toy import make_plan, plan


def read(layer, op):
    return Read("target_layers", layer, op, op, 1000, 8, 0)


def mixture(*ops):
    return make_plan([("target", [read(layer, op) for layer in (0, 1) for op in ops])], 2)


def orders(of):
    return {tuple(r.op for r in p.reads if r.layer == 0) for p in read_orders(of)}


def test_a_dense_model_has_one_order():
    of = plan(2)
    assert read_orders(of) == [of]


def test_a_mixture_without_shared_expert_has_one_order():
    assert orders(mixture("qkv", "o", "router", "experts_up")) == {
        ("qkv", "o", "router", "experts_up")
    }


def test_a_shared_expert_runs_before_between_or_behind():
    of = mixture("qkv", "o", "router", "experts_up", "experts_down", "shared_up", "shared_down")
    front, experts, shared = (
        ("qkv", "o"),
        ("experts_up", "experts_down"),
        ("shared_up", "shared_down"),
    )
    assert orders(of) == {
        (*front, "router", *shared, *experts),
        (*front, "router", *experts, *shared),
        (*front, *shared, "router", *experts),
    }


def test_every_order_has_the_same_reads_layer_by_layer():
    of = mixture("qkv", "router", "experts_up", "shared_up", "o")
    for other in read_orders(of):
        assert sorted(other.reads, key=repr) == sorted(of.reads, key=repr)
        assert [r.layer for r in other.reads] == [r.layer for r in of.reads]
        assert [r.op for r in other.reads if r.op in ("qkv", "o")] == ["qkv", "o"] * 2


def test_the_up_projection_of_latents_may_stand_on_both_sides_of_attention():
    of = mixture("q_a", "q_b", "kv_b", "o")
    whole, absorbed = read_orders(of)
    assert whole == of
    ops = [(r.op, r.weight_bytes, r.basis) for r in absorbed.reads if r.layer == 1]
    assert ops[2:4] == [("k_b", 500, "derived"), ("v_b", 500, "derived")]
    assert len({r.group for r in absorbed.reads if r.op in ("k_b", "v_b")}) == 4
    assert sum(r.weight_bytes for r in absorbed.reads) == sum(r.weight_bytes for r in of.reads)
