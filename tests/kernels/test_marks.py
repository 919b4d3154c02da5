"""From findings to marks: layer, matrices, bytes and block of each kernel."""

from __future__ import annotations

from tracebook.kernels.fit import Fit, Found
from tracebook.kernels.marks import PHASE_OF_BLOCK, BlockMark, Mark, marks_of_fit
from tracebook.phases import Phase

from .toy import HEAD_MB, MB, drafted_plan, plan


def test_a_fused_kernel_names_all_its_matrices():
    fit = Fit((Found((5,), 0, 3),), 200.0, 0.0, 60)
    marks = marks_of_fit(fit, plan(2))
    assert marks.marks == (Mark(5, 0, 0, "q+k+v", "q_proj+k_proj+v_proj", 18 * MB, "alignment"),)


def test_parts_of_one_matrix_share_its_bytes():
    of = plan(1)
    head = len(of.reads) - 1
    marks = marks_of_fit(Fit((Found((7, 8, 9), head, head + 1),), 200.0, 0.0, 12), of).marks
    assert [mark.position for mark in marks] == [7, 8, 9]
    assert sum(mark.weight_bytes for mark in marks) == HEAD_MB * MB
    assert {(mark.matrix, mark.layer, mark.block) for mark in marks} == {("lm_head", None, 1)}


def test_reads_keep_their_block_and_pass():
    of = drafted_plan(2)
    last = len(of.reads) - 1
    fit = Fit((Found((3,), last, last + 1), Found((1,), 0, 3)), 200.0, 0.0, 12)
    marks = marks_of_fit(fit, of)
    assert marks.blocks[0] == BlockMark("target", Phase.TARGET_LAYERS, 0)
    assert marks.blocks[marks.marks[0].block] == BlockMark("draft_head", Phase.DRAFT_HEAD, 1)
    assert [mark.position for mark in marks.by_position()] == [1, 3]


def test_every_block_has_its_phase():
    assert {str(phase) for phase in PHASE_OF_BLOCK.values()} == {
        "target_layers", "output_layer", "drafter_layers", "draft_head",
    }  # fmt: skip
    of = drafted_plan(1)
    for block in of.blocks:
        assert {read.phase for read in block.reads} == {str(PHASE_OF_BLOCK[block.name])}
