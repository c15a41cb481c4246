"""What is computed of measured values."""

import json
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.benchmark.measures import Aim, Results, Series, amount, growth, growths


def series(*values, what="put", subject="a2a-gcs", size=None, better="lower"):
    return Series(what, subject, "s", size, better, list(values))


@settings(deadline=None)
@given(
    exponent=st.floats(-3, 3),
    factor=st.floats(1e-6, 1e6),
    sizes=st.lists(st.integers(1, 10**6), min_size=3, max_size=6, unique=True),
)
def test_the_exponent_of_a_power_of_the_size_is_that_power(exponent, factor, sizes):
    """Whatever the factor and the sizes are."""
    assume(max(sizes) >= 2 * min(sizes))
    points = [(size, factor * size**exponent) for size in sizes]
    assert growth(points) == pytest.approx(exponent, abs=1e-6)


def test_a_constant_part_makes_growth_look_slower_and_a_quadratic_one_faster():
    """What is fitted is the curve through the sizes that were measured."""
    sizes = (100, 1000, 10_000)
    assert growth([(n, 50 + n) for n in sizes]) < 1
    assert 1.1 < growth([(n, n + n * n / 1000) for n in sizes]) < 2


@pytest.mark.parametrize("points", [[], [(1, 1), (2, 2)], [(1, 1), (2, 2), (2, 3)], [(1, 1), (2, 0), (3, 3)]])
def test_what_cannot_be_fitted_has_no_exponent(points):
    """Under three different sizes, or a cost that is not positive."""
    assert growth(points) is None


def test_only_costs_at_three_sizes_have_an_exponent():
    """By what was done and by whom; a rate that falls is no cost."""
    results = Results("s", "S", "about")
    for size in (10, 100, 1000):
        results.series += [
            series(size, size=size),
            series(size**2, subject="other", size=size),
            series(size, what="rate", size=size, better="higher"),
        ]
    results.series += [series(1, what="two sizes", size=size) for size in (1, 2)] + [series(1, what="no size")]
    assert growths(results) == {
        ("put", "a2a-gcs"): pytest.approx(1),
        ("put", "other"): pytest.approx(2),
    }


@pytest.mark.parametrize(
    ("values", "spread"),
    [([5], 0), ([0, 0, 0], 0), ([9, 11], 0.1), ([8, 10, 12], 0.2), ([1, 9, 10, 11, 99], 0.1)],
)
def test_the_spread_is_half_of_what_lies_between_the_quartiles(values, spread):
    """As a fraction of the median; one value has none, and under four all of it counts."""
    assert series(*values).spread == pytest.approx(spread)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=9), st.floats(0.1, 100))
def test_the_spread_does_not_depend_on_the_unit(values, factor):
    """Nor is it ever negative."""
    spread = series(*values).spread
    assert spread >= 0
    assert series(*(factor * value for value in values)).spread == pytest.approx(spread, abs=1e-9)


@pytest.mark.parametrize(
    ("actual", "at_least", "met"),
    [(3.9, True, False), (4, True, True), (4.1, True, True), (3.9, False, True), (4, False, True), (4.1, False, False)],
)
def test_a_bound_itself_is_within(actual, at_least, met):
    """From both sides."""
    assert Aim("four", actual, 4, at_least).met is met


def test_results_are_the_same_after_json():
    """With all that they hold; and what an earlier run has not kept is empty."""
    results = Results(
        "s", "S", "about", [series(1, 2, size=3)], [Aim("a", 1, 2, at_least=True, why="b")], ["n"], {"w": "y"}
    )
    kept = json.loads(json.dumps(results.to_json()))
    assert Results.from_json(kept) == results
    del kept["reasons"], kept["reference"], kept["aims"][0]["why"]
    assert Results.from_json(kept).aims == [Aim("a", 1, 2, at_least=True)]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "", "0"),
        (5, "requests", "5 requests"),
        (0.0012345, "s", "0.00123 s"),
        (12.345, "", "12.3"),
        (1234.5, "tasks/s", "1,234 tasks/s"),
        (999, "bytes", "999 bytes"),
        (1_500_000, "bytes", "1.50 MB"),
        (2e12, "bytes", "2,000 GB"),
        (2.5e-9, "s", "2.50e-09 s"),
        (math.inf, "s", "inf s"),
    ],
)
def test_amounts_are_for_people(value, unit, text):
    """Three digits that count; bytes as people have them."""
    assert amount(value, unit) == text
