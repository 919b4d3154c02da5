"""A template as the alignment sees it: what each name tells of reading weights."""

from __future__ import annotations

import numpy as np

from tracebook.columns import Bools
from tracebook.kernels.align import Column
from tracebook.kernels.classes import CLASSES
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.template import Template

#: Classes of the kernels that mix tokens: they read a cache or a state.
MIXES = ("attention", "gdn")
#: Classes whose names do not rule out that ranks add up.
MAY_ADD_UP = ("unknown", "elementwise", "copy")
#: Classes that certainly read no weights; matching one costs extra.
NOT_WEIGHTS = 3.0
#: A kernel that says it is a product hardly reads no weights.
PRODUCT_SKIP = 2.0
#: Where names tell the products that take most of a step, an unknown name is hardly one more.
PRODUCTS_TOLD, UNTOLD_SKIP = 0.6, 0.3
#: An unknown name that takes this share of a step can only be a product.
PRODUCT_SHARE = 0.3


def template_column(kernels: Kernels, template: Template) -> Column:
    """The template as the alignment sees it."""
    source = template.source
    names = np.array(CLASSES)[kernels.kernel_class[source]]
    reads_weights = np.isin(names, ["gemm", "unknown"])
    named = names == "gemm"
    product = named | _product_names(kernels, template, names == "unknown")
    spent = float(template.duration_ns[named].sum())
    untold = UNTOLD_SKIP if spent >= PRODUCTS_TOLD * float(template.duration_ns.sum()) else 1.0
    return Column(
        duration_ns=template.duration_ns,
        symbol=kernels.symbol[source],
        match_penalty=np.where(reads_weights, 0.0, NOT_WEIGHTS),
        skip_factor=np.where(product, PRODUCT_SKIP, np.where(reads_weights, untold, 0.1)),
        grid=kernels.grid[source],
        named=named,
        distance=np.ones(len(source), dtype=np.int64),
        telling=~np.isin(kernels.base_name[source], kernels.empty_base_names),
        mixes=np.isin(names, MIXES),
        # Where a name tells collectives no other kernel is one.
        may_add_up=np.isin(names, MAY_ADD_UP) & (names != "comm").all(),
    )


def _product_names(kernels: Kernels, template: Template, unknown: Bools) -> Bools:
    """True where an unknown base name takes so much of the step that it must read weights."""
    base = kernels.base_name[template.source]
    spent = np.bincount(
        base[unknown], weights=template.duration_ns[unknown], minlength=base.max() + 1
    )
    telling = ~np.isin(base, kernels.empty_base_names)
    return np.asarray(
        unknown & telling & (spent[base] > PRODUCT_SHARE * template.duration_ns.sum())
    )
