import unicodedata
from dataclasses import replace

import numpy as np

from unseen.data.datasets.digits import Digits
from unseen.data.index import Index, Split, held_out

NAMES = [f"photo/dog/{number}.jpg" for number in range(20_000)]


def test_shares_hold_and_adding_and_reordering_moves_nothing() -> None:
    splits = held_out(NAMES, 0.1, 0.2, seed=3)
    shares = np.bincount(splits, minlength=3) / len(NAMES)
    assert splits.dtype == np.uint8
    assert np.allclose(shares, [0.7, 0.1, 0.2], atol=0.01)
    more = ["new/first.jpg", *reversed(NAMES), "photo/dog/last.jpg"]
    assert np.array_equal(held_out(more, 0.1, 0.2, seed=3)[1:-1][::-1], splits)
    assert held_out(NAMES, 0, 0, 0).max() == Split.TRAIN
    assert len(held_out([], 0.1, 0.1, 0)) == 0


def test_known_values_never_change() -> None:
    """A change here would move images between the splits of everybody's experiments."""
    splits = held_out([f"image {number}" for number in range(20)], 0.25, 0.25, seed=7)
    assert splits.tolist() == [0] * 7 + [2, 2, 1, 2, 0, 0, 0, 2, 0, 2, 2, 2, 2]


def test_seed_draws_others_and_shares_do_not_disturb_each_other() -> None:
    first, other = (held_out(NAMES, 0.1, 0.1, seed) for seed in (0, 1))
    assert (first != other).mean() > 0.2
    less_test = held_out(NAMES, 0.1, 0.05, 0)
    assert np.array_equal(first == Split.VALIDATION, less_test == Split.VALIDATION)
    assert np.all(first[less_test == Split.TEST] == Split.TEST)


def test_accents_count_the_same_in_both_spellings() -> None:
    names = [f"café {number}" for number in range(200)]
    apart = [unicodedata.normalize("NFD", name) for name in names]
    assert np.array_equal(held_out(names, 0.3, 0.3, 0), held_out(apart, 0.3, 0.3, 0))
    assert len(held_out(["\udcff.jpg"], 0.1, 0.1, 0)) == 1


class Listed(Digits):
    """Digits with published lists: one image measures, one is there for the unseen case alone."""

    def build_index(self) -> Index:
        index = super().build_index()
        splits = np.full(len(index), Split.TRAIN, dtype=np.uint8)
        splits[:2] = Split.TEST, Split.UNSEEN
        return replace(index, splits=splits, official_test=True)


def test_published_lists_can_be_left_aside() -> None:
    official = Listed(Listed.Config(name="digits"), None).index()
    assert official.official_test
    config = Listed.Config(
        name="digits", official_splits=False, validation_share=0.2, test_share=0, split_seed=5
    )
    drawn = Listed(config, None).index()
    assert not drawn.official_test
    assert drawn.splits[1] == Split.UNSEEN  # may repeat a training image: it never trains
    rest = np.arange(len(drawn)) != 1
    expected = held_out(drawn.names, 0.2, 0, seed=5)
    assert np.array_equal(drawn.splits[rest], expected[rest])
    assert drawn.splits.dtype == np.uint8
    other = Listed(config.model_copy(update={"split_seed": 6}), None).index()
    assert not np.array_equal(other.splits, drawn.splits)
