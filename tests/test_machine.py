from __future__ import annotations

from pathlib import Path

import pytest

from tracebook.errors import RuleError, RunDescriptionError
from tracebook.machine import machine_table, parse_entry, resolve_machine
from tracebook.trace import Gpu, TraceInfo


def info(*gpus: Gpu) -> TraceInfo:
    return TraceInfo(path=Path("run.sqlite"), gpus=gpus)


GB10 = Gpu(device=0, name="NVIDIA GB10", bandwidth_gbps=546.112, sm_count=48)


def codes(machine):
    return [notice.code for notice in machine.notices]


def test_gb10_export_states_twice_the_peak_and_the_table_wins():
    machine = resolve_machine(info(GB10), 0)
    assert machine.bandwidth_gbps == 273
    assert machine.name == "DGX Spark (GB10)"
    assert "DGX Spark" in machine.source
    assert machine.notices == ()


def test_gb10_ceiling_lies_in_the_measured_range_and_names_its_source():
    machine = resolve_machine(info(GB10), 0)
    assert 231 <= machine.ceiling_gbps <= 236
    assert "ds4" in machine.source


@pytest.mark.parametrize(
    ("name", "sm_count", "claimed", "peak"),
    [
        # `claimed` is what real exports say; the data sheet is rounded, never far away.
        ("NVIDIA A100-SXM4-40GB", 108, 1555.2, 1555),
        ("A100-PCIE-40GB", 108, None, 1555),
        ("NVIDIA A100-SXM4-80GB", 108, 2039.04, 2039),
        ("NVIDIA GeForce RTX 3090", 82, 936.096, 936),
        ("NVIDIA GeForce RTX 3080", 68, 760.08, 760),
        ("NVIDIA H200", 132, 4916.736, 4800),
        ("NVIDIA H100 80GB HBM3", 132, None, 3350),
        ("NVIDIA H100 PCIe", 114, None, 2000),
        ("NVIDIA GeForce RTX 5090", 170, None, 1792),
    ],
)
def test_gpu_names_of_exports_are_found(name, sm_count, claimed, peak):
    machine = resolve_machine(info(Gpu(0, name, claimed, sm_count)), 0)
    assert machine.bandwidth_gbps == peak
    assert machine.notices == ()


def test_two_products_of_one_name_are_told_apart_by_their_multiprocessors():
    def peak(sm_count):
        return resolve_machine(
            info(Gpu(0, "NVIDIA GeForce RTX 3080", None, sm_count)), 0
        ).bandwidth_gbps

    assert (peak(68), peak(70), peak(58)) == (760, 912, None)


def test_a_laptop_variant_is_not_its_big_sister():
    laptop = Gpu(0, "NVIDIA GeForce RTX 3090 Laptop GPU", 448.0, 48)
    machine = resolve_machine(info(laptop), 0)
    assert machine.bandwidth_gbps == 448.0
    assert codes(machine) == ["bandwidth_from_export"]
    assert "export" in machine.source


def test_a_given_bandwidth_wins_over_table_and_export():
    machine = resolve_machine(info(GB10), 0, bandwidth_gbps=270.0)
    assert (machine.bandwidth_gbps, machine.ceiling_gbps) == (270.0, None)
    assert machine.source == "bandwidth given by the user"
    assert codes(machine) == []


def test_a_given_bandwidth_far_from_the_table_is_said():
    machine = resolve_machine(info(GB10), 0, bandwidth_gbps=546.0)
    assert machine.bandwidth_gbps == 546.0
    assert codes(machine) == ["bandwidth_differs"]


def test_a_given_ceiling_above_the_peak_is_kept_and_said():
    machine = resolve_machine(info(GB10), 0, ceiling_gbps=300.0)
    assert machine.ceiling_gbps == 300.0
    assert codes(machine) == ["ceiling_above_peak"]


def test_the_gpu_is_joined_by_id_never_by_row():
    gpus = (Gpu(1, "NVIDIA L4", None, 58), Gpu(0, "NVIDIA H200", None, 132))
    assert resolve_machine(info(*gpus), 0).bandwidth_gbps == 4800
    assert resolve_machine(info(*gpus), 1).bandwidth_gbps == 300


def test_a_device_that_is_not_listed_is_not_guessed():
    machine = resolve_machine(info(GB10), 3)
    assert machine.bandwidth_gbps is None
    assert codes(machine) == ["bandwidth_unknown"]


def test_gpus_without_numbers_count_where_they_are_all_alike():
    a100 = Gpu(None, "A100-PCIE-40GB", None, None)
    assert resolve_machine(info(a100, a100), 2).bandwidth_gbps == 1555
    assert resolve_machine(info(a100, Gpu(None, "NVIDIA L4", None, None)), 2).name is None


def test_no_gpu_at_all_gives_none_and_a_notice():
    machine = resolve_machine(info(), 0)
    assert (machine.name, machine.bandwidth_gbps, machine.ceiling_gbps) == (None, None, None)
    assert codes(machine) == ["bandwidth_unknown"]


@pytest.mark.parametrize("name", ["dgx-spark", "GB10", "spark", "NVIDIA GB10", "DGX Spark (GB10)"])
def test_a_machine_is_known_by_key_alias_and_gpu(name):
    assert resolve_machine(info(), None, name=name).bandwidth_gbps == 273


def test_a_machine_that_contradicts_the_export_is_said():
    machine = resolve_machine(info(GB10), 0, name="h200")
    assert machine.bandwidth_gbps == 4800
    assert codes(machine) == ["machine_differs"]


def test_orin_modules_are_given_by_name_without_a_warning():
    orin = Gpu(0, "Orin", None, 16)
    assert codes(resolve_machine(info(orin), 0)) == ["bandwidth_unknown"]
    assert resolve_machine(info(orin), 0, name="jetson-agx-orin").notices == ()


def test_an_unknown_machine_is_refused_with_the_nearest_name():
    with pytest.raises(RunDescriptionError) as caught:
        resolve_machine(info(), None, name="dgx-sparc")
    assert "dgx-spark" in caught.value.hint


@pytest.mark.parametrize("rate", [0, -273, float("nan"), float("inf")])
def test_rates_must_be_positive_numbers(rate):
    with pytest.raises(RunDescriptionError):
        resolve_machine(info(GB10), 0, bandwidth_gbps=rate)
    with pytest.raises(RunDescriptionError):
        resolve_machine(info(GB10), 0, ceiling_gbps=rate)


def test_every_entry_has_a_source_and_a_ceiling_below_its_peak():
    for entry in machine_table().values():
        assert entry.source
        assert entry.ceiling_gbps is None or entry.ceiling_gbps < entry.bandwidth_gbps


ENTRY = {"title": "X", "gpus": ["X"], "bandwidth_gbps": 1, "source": "data sheet"}


@pytest.mark.parametrize(
    "change",
    [
        {"bandwith_gbps": 1},
        {"bandwidth_gbps": 0},
        {"bandwidth_gbps": "273"},
        {"ceiling_gbps": 1},
    ],
)
def test_a_wrong_entry_is_refused(change):
    parse_entry("x", ENTRY)
    with pytest.raises(RuleError):
        parse_entry("x", ENTRY | change)
