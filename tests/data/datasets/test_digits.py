import numpy as np
from tests.data.conftest import contents

from unseen.data.datasets.digits import DOMAINS, Digits
from unseen.data.index import Split


def digits(**values: object) -> Digits:
    return Digits(Digits.Config.model_validate({"name": "digits", **values}), None)


def test_every_digit_is_in_one_domain_and_classes_are_balanced() -> None:
    """The seed of the split changes no pixel."""
    one, two = digits(), digits(split_seed=1)
    index = one.index()
    assert len(index) == 1797
    assert index.domains == DOMAINS
    assert len({name.rpartition("/")[2] for name in index.names}) == 1797
    counts = np.zeros((4, 10), dtype=int)
    np.add.at(counts, (index.domain_of, index.labels), 1)
    assert np.all(counts.max(axis=0) - counts.min(axis=0) <= 1)
    assert counts.min() >= 43
    assert set(index.splits.tolist()) == {Split.TRAIN, Split.VALIDATION, Split.TEST}
    assert index.names == two.index().names
    assert not np.array_equal(index.splits, two.index().splits)
    assert contents(one) == contents(two)
    assert one.signature(5) == two.signature(5)


def test_the_domains_look_as_they_are_called() -> None:
    dataset = digits()
    plain, blended, coloured, outlines = (
        np.stack([np.asarray(dataset.read(int(row))) for row in dataset.index().rows(domain)])
        for domain in DOMAINS
    )
    assert plain.shape[1:] == (32, 32, 3)
    assert plain[:, 0].max() == 0
    assert plain.max() > 240
    assert np.ptp(plain.astype(int), axis=-1).max() == 0
    assert outlines[:, 0].min() == 255
    assert outlines.min() < 30
    assert np.ptp(outlines.astype(int), axis=-1).max() == 0
    assert np.ptp(coloured[:, 0, 0].astype(int), axis=-1).mean() > 80
    assert len(np.unique(coloured[:, 0, 0], axis=0)) > 400
    assert coloured[:, 0, 0].max(axis=-1).min() > 200
    assert blended[:, 0].std(axis=(1, 2)).max() > 40
