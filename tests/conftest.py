from __future__ import annotations

import pytest
from handmade import make_report

from tracebook.report import Report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="write the expected reports of the saved runs anew"
    )


@pytest.fixture
def report() -> Report:
    """The account of the hand-made run."""
    return make_report()
