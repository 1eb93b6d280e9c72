"""Ranges: values worked out by hand, and those that stand on the settings of every method."""

from collections import Counter

import pytest

from unseen.errors import SettingsError
from unseen.settings import catalog
from unseen.settings.experiment import OptimizerSettings
from unseen.settings.ranges import Choice, LogUniform, Range, Uniform, declared, fraction

ALMOST_ONE = 1 - 2**-53


@pytest.mark.parametrize(
    ("known", "u", "expected"),
    [
        (Uniform(0, 10), 0.25, 2.5),
        (Uniform(-1, 1), 0.0, -1.0),
        (LogUniform(1e-4, 1e-2), 0.5, 1e-3),
        (LogUniform(1e-4, 1e-2), 0.25, 3.162e-4),  # four digits
        (LogUniform(1e-6, 3.16227766e-4), ALMOST_ONE, 3.162e-4),
        (Uniform(1, 3, whole=True), 0.32, 1),
        (Uniform(1, 3, whole=True), 0.34, 2),
        (Uniform(1, 3, whole=True), ALMOST_ONE, 3),
        (LogUniform(8, 45, whole=True), 0.0, 8),
        (LogUniform(8, 45, whole=True), 0.5, 19),  # 8 · (46/8)^½ = 19.18
        (LogUniform(8, 45, whole=True), ALMOST_ONE, 45),
        (Uniform(0.12341, 0.12343), 0.5, 0.12341),  # rounding never leaves the range
        (Uniform(0.12346, 0.12347), 0.5, 0.12347),
        (Choice(("a", "b", "c")), 0.34, "b"),
        (Choice(("a", "b", "c")), ALMOST_ONE, "c"),
    ],
)
def test_draws(known: Range, u: float, expected: object) -> None:
    drawn = known.draw(u)
    assert drawn == expected
    assert type(drawn) is type(expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogUniform(0, 1), "a logarithmic range begins above 0, got 0 to 1, log"),
        (lambda: Uniform(2, 1), "needs two numbers, low and high, got 2 to 1"),
        (lambda: Uniform(0, float("inf")), "low and high"),
        (lambda: Uniform(0.5, 2, whole=True), "needs whole ends, got 0.5 to 2"),
        (lambda: Choice(()), "at least one value"),
    ],
)
def test_ranges_that_are_none(make, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make()


def test_fractions_are_the_same_everywhere_and_spread_evenly() -> None:
    assert fraction(0, "dmg", 1, 0, "optimizer.lr") == 0.21293015839005103
    assert fraction("a", "bc") != fraction("ab", "c")
    numbers = [fraction(0, "dmg", draw, 0, "optimizer.lr") for draw in range(1000)]
    assert all(0 <= number < 1 for number in numbers)
    tenths = Counter(int(10 * number) for number in numbers)
    assert all(70 < tenths[tenth] < 130 for tenth in range(10))


def test_ranges_stand_on_the_settings() -> None:
    fields = OptimizerSettings.model_fields
    assert declared(fields["lr"].metadata) == LogUniform(1e-5, 3e-4)
    assert declared(fields["momentum"].metadata) is None


@pytest.mark.parametrize("name", catalog.METHODS)
def test_every_value_of_a_methods_ranges_is_valid(name: str) -> None:
    config = catalog.load("method", name).Config
    for setting, field in config.model_fields.items():
        known = declared(field.metadata)
        for value in known.extremes() if known else ():
            accepted = config.model_validate({"name": name, setting: value}, strict=False)
            assert getattr(accepted, setting) == value
