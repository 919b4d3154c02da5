from __future__ import annotations

import pytest
from handmade import make_report
from hypothesis import HealthCheck, settings

from tracebook.report import Report

# How fast a machine draws examples is no property of the code.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="write the expected reports of the saved runs anew"
    )


@pytest.fixture
def report() -> Report:
    """The account of the hand-made run."""
    return make_report()
