from __future__ import annotations

import pytest
from handmade import make_report

from tracebook.report import Report


@pytest.fixture
def report() -> Report:
    """The account of the hand-made run."""
    return make_report()
