"""`sampling=class_balanced`: as many images of each domain, and of each class within it."""

from collections import Counter

import numpy as np
import pytest

from unseen.data.sampling import Sampler

# Class sizes of three domains: one is skewed, one lacks class 1, one has a single image of class 2
SIZES = ({0: 40, 1: 8, 2: 2}, {0: 5, 2: 12}, {0: 9, 1: 9, 2: 1})
LABELS = [np.repeat(list(sizes), list(sizes.values())) for sizes in SIZES]
ROWS = [100 * domain + np.arange(len(labels)) for domain, labels in enumerate(LABELS)]
LABEL_OF = {
    int(row): int(label)
    for rows, labels in zip(ROWS, LABELS, strict=True)
    for row, label in zip(rows, labels, strict=True)
}


def sampler(images_per_domain: int = 6, seed: int = 0, **target) -> Sampler:
    return Sampler(ROWS, images_per_domain, "class_balanced", seed, labels=LABELS, **target)


def classes(rows: np.ndarray) -> Counter:
    return Counter(LABEL_OF[int(row)] for row in rows)


def test_a_batch_has_as_many_images_of_each_domain_and_class() -> None:
    rows, domains, places = sampler(6).positions(3)
    assert domains.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert (rows // 100).tolist() == domains.tolist()
    assert places.tolist() == list(range(18))
    assert classes(rows[:6]) == {0: 2, 1: 2, 2: 2}
    assert classes(rows[6:12]) == {0: 3, 2: 3}, "a class that a domain lacks is left out there"
    assert classes(rows[12:]) == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize("images_per_domain", [1, 4, 7])
def test_batches_that_classes_do_not_divide_even_out_over_steps(images_per_domain: int) -> None:
    this = sampler(images_per_domain)
    seen = Counter()
    for step in range(30):
        rows = this.positions(step)[0][:images_per_domain]
        counts = classes(rows)
        each = [counts[label] for label in range(3)]
        assert max(each) - min(each) <= 1
        seen += counts
        assert max(seen.values()) - min(seen[label] for label in range(3)) <= 1
    assert set(seen.values()) == {10 * images_per_domain}


def test_every_image_of_a_class_comes_once_a_pass() -> None:
    this = sampler(3)
    rows = np.concatenate([this.positions(step)[0][:3] for step in range(120)])
    for label, size in SIZES[0].items():
        own = [row for row in rows if LABEL_OF[int(row)] == label]
        passes = np.array(own[: len(own) // size * size]).reshape(-1, size)
        assert len(passes) == 120 // size
        assert all(len(set(one)) == size for one in passes)
        if size > 2:
            assert passes[0].tolist() != passes[1].tolist(), "shuffled anew"


def test_classes_have_other_places_in_each_step_and_for_each_seed() -> None:
    """Otherwise every second process would always get the same classes."""
    batches = [sampler(3).positions(step)[0][:3] for step in range(40)]
    assert len({tuple(LABEL_OF[int(row)] for row in batch) for batch in batches}) == 6
    assert sampler(3, seed=1).positions(0)[0].tolist() != sampler(3).positions(0)[0].tolist()


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_out_the_batch_of_one(world: int) -> None:
    whole = sampler().positions(5)
    parts = [sampler().positions(5, rank, world) for rank in range(world)]
    order = np.argsort(np.concatenate([places for _, _, places in parts]))
    for number in range(3):
        together = np.concatenate([part[number] for part in parts])[order]
        assert together.tolist() == whole[number].tolist()
    assert all(set(domains) == {0, 1, 2} for _, domains, _ in parts)


@pytest.mark.parametrize("images_per_domain", [4, 25])
def test_a_block_of_steps_is_its_steps(images_per_domain: int) -> None:
    """Also across the places at which the orders of classes are drawn anew."""
    this, other = (sampler(images_per_domain, seed=3) for _ in range(2))
    steps = range(2, 60)
    assert this.block(steps).tolist() == [other.positions(step)[0].tolist() for step in steps]


def test_a_step_does_not_depend_on_the_steps_before_it() -> None:
    one, other = sampler(), sampler()
    for step in range(20):
        one.positions(step)
    assert one.positions(33)[0].tolist() == other.positions(33)[0].tolist()


def test_target_images_have_passes_of_their_own() -> None:
    target = np.arange(300, 305)
    this = sampler(target=(target, 5))
    assert sorted(this.target_positions(7)[0]) == target.tolist()
    assert this.positions(3)[0].tolist() == sampler().positions(3)[0].tolist()
