from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from perf_gate.calibration.rate import Rate


@given(st.integers(1, 20_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_the_exact_one(counted):
    hits, n = counted
    ours, theirs = Rate(hits, n).interval, stats.binomtest(hits, n).proportion_ci(0.95, method="exact")
    assert ours == pytest.approx((theirs.low, theirs.high), rel=1e-9, abs=1e-12)
    assert ours[0] <= hits / n <= ours[1]


def test_none_of_ten_thousand_still_leaves_room():
    assert str(Rate(0, 10_000)) == "0.00 % [0.00, 0.04]"
    assert str(Rate(20, 20)) == "100.00 % [83.2, 100.00]"


@pytest.mark.parametrize(("hits", "n"), [(-1, 3), (4, 3), (0, 0)])
def test_what_cannot_have_been_counted_is_refused(hits, n):
    with pytest.raises(ValueError, match="hits"):
        Rate(hits, n)
