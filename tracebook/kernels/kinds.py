"""Kinds of step in words: a signature, how many sequences they decode, how often they occur."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracebook.columns import Bools
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.classes import CLASSES
from tracebook.kernels.labels import KindInfo
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.steps import ROW_CLASSES, Kind

#: The usual grid is the number of tokens beyond doubt where so many kernel names share it
#: and so many of the row-wise kernels have it.
NAMES_SHARING, SHARE_SHARING = 3, 0.5
#: Of norms two names and a third do: norms of heads, fused with the rotary embedding, have
#: more blocks, other row-wise kernels may put a block on a part of a row.
NORMS_SHARING, SHARE_OF_NORMS = 2, 1 / 3
#: A name shares the usual grid if at least this share of its launches has it.
OWN_SHARE = 0.5


@dataclass(frozen=True)
class Choice:
    """Which kind of step to account for; None leaves it to frequency.

    `batch` is in sequences, each of `rows_per_sequence` tokens (draft tokens and one more).
    """

    signature: str | None = None
    batch: int | None = None
    rows_per_sequence: int = 1

    def allows(self, info: KindInfo) -> bool:
        """Whether a kind is the one that was asked for."""
        if self.signature is not None:
            return info.signature.startswith(self.signature)
        if self.batch is None or info.rows is None:
            return True
        return info.rows == self.batch * self.rows_per_sequence

    def allows_drafting(self, info: KindInfo) -> bool:
        """Whether a kind may be the one that was asked for though most kernels draft.

        The passes of a deep drafter have one token a sequence each, and together more kernels
        than the one that verifies them.
        """
        drafting = self.batch is not None and self.rows_per_sequence > 1
        return drafting and self.signature is None and info.rows == self.batch


def describe_kind(kernels: Kernels, kind: Kind) -> KindInfo:
    """Signature, size and rows of a kind, by its middle slice."""
    piece = kind.middle
    part = slice(piece.first, piece.end)
    shapes = Counter(kernels.shape_symbol[part].tolist())
    first = {int(s): i for i, s in reversed(list(enumerate(kernels.shape_symbol[part].tolist())))}
    lines = []
    for shape, count in shapes.items():
        index = piece.first + first[shape]
        grid = ",".join(str(int(g)) for g in kernels.grid[index])
        name = kernels.names[int(kernels.name_ids[kernels.name[index]])]
        lines.append(f"{name}|{grid}|{count}")
    text = "\n".join(sorted(lines))
    signature = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    classes = np.array(CLASSES)[kernels.kernel_class[part]]
    rows, grids = _rows(kernels, part, np.isin(classes, ROW_CLASSES), NAMES_SHARING, SHARE_SHARING)
    _, norms = _rows(kernels, part, classes == "norm", NORMS_SHARING, SHARE_OF_NORMS)
    return KindInfo(signature, len(kind.slices), piece.end - piece.first, rows, grids, norms)


def _rows(
    kernels: Kernels, part: slice, by_row: Bools, names: int, share: float
) -> tuple[int | None, tuple[int, ...]]:
    """The usual grid of the kernels that work row by row (one block per token), and all.

    All are given only where so many names and that share of these kernels have the usual one.
    """
    by_row = by_row & (kernels.grid[part][:, 0] > 0)
    grids = kernels.grid[part][by_row][:, 0]
    if not len(grids):
        return None, ()
    values, counts = np.unique(grids, return_counts=True)
    usual = int(values[counts.argmax()])
    _, name = np.unique(kernels.base_name[part][by_row], return_inverse=True)
    # A name that mostly has other grids has this one for another reason (norms of heads).
    have = np.bincount(name, weights=grids == usual) >= OWN_SHARE * np.bincount(name)
    sharing = int(have.sum())
    if sharing < names or counts.max() < share * len(grids):
        return usual, ()
    return usual, tuple(values[np.argsort(-counts, kind="stable")].tolist())


def choose_kinds(kernels: Kernels, kinds: Sequence[Kind], choice: Choice | None) -> list[Kind]:
    """The kinds that the choice allows, in their order.

    Raises:
        NoDecodeSteps: None is allowed; the message lists what there is.
    """
    if choice is None or (choice.signature is None and choice.batch is None):
        return list(kinds)
    infos = [describe_kind(kernels, kind) for kind in kinds]
    allowed = [kind for kind, info in zip(kinds, infos, strict=True) if choice.allows(info)]
    if not allowed:
        pairs = zip(kinds, infos, strict=True)
        allowed = [kind for kind, info in pairs if choice.allows_drafting(info)]
    if kinds and not allowed:
        wanted = (
            f"signature {choice.signature}"
            if choice.signature is not None
            else f"batch {choice.batch} ({choice.rows_per_sequence} tokens per sequence)"
        )
        present = "; ".join(f"{info.steps} steps of {info.describe()}" for info in infos[:6])
        raise NoDecodeSteps(f"No step of {wanted} was found.", f"There are: {present}.")
    return allowed
