"""Student's t distribution, so that scipy need not be installed for one function."""

from __future__ import annotations

import math

_TINY = 1e-300
_MOST_TERMS = 300


def two_sided_p(t: float, df: float) -> float:
    """Chance that |T| is at least |t| with `df` degrees of freedom (df above 0)."""
    if math.isnan(t):
        return 1.0
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(df / (df + t * t), df / 2.0, 0.5)


def two_sided_quantile(p: float, df: float) -> float:
    """The t at which `two_sided_p` is `p`, by bisection."""
    low, high = 0.0, 1.0
    while two_sided_p(high, df) > p:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if two_sided_p(middle, df) > p else (low, middle)
    return (low + high) / 2.0


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b).

    Lentz's evaluation of the continued fraction (Abramowitz and Stegun, 26.5.8), which
    converges fast below the mean of the distribution; above it by symmetry.
    """
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(1.0 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0) or _TINY)
    fraction = d
    for m in range(1, _MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1.0 + term * d or _TINY)
            c = 1.0 + term / c or _TINY
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return front * fraction / a
