"""The sampler is a pure function of the step, in each of its modes."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from unseen.data.sampling import Sampler

# Class sizes of three domains: one is skewed, one lacks class 1, one has a single image of class 2
SIZES = ({0: 40, 1: 8, 2: 2}, {0: 5, 2: 12}, {0: 9, 1: 9, 2: 1})
LABELS = [np.repeat(list(sizes), list(sizes.values())) for sizes in SIZES]
ROWS = [100 * domain + np.arange(len(labels)) for domain, labels in enumerate(LABELS)]
LABEL_OF = dict(zip(np.concatenate(ROWS).tolist(), np.concatenate(LABELS).tolist(), strict=True))
MODES = ["balanced", "class_balanced", "pooled"]


def sampler(mode: Any, images_per_domain: int = 6, seed: int = 0, target: Any = None) -> Sampler:
    return Sampler(ROWS, images_per_domain, mode, seed, target, LABELS)


def classes(rows: np.ndarray) -> Counter[int]:
    return Counter(LABEL_OF[int(row)] for row in rows)


@pytest.mark.parametrize("mode", ["balanced", "class_balanced"])
def test_a_batch_has_as_many_images_of_each_domain_domain_after_domain(mode: str) -> None:
    rows, domains, places = sampler(mode).positions(3)
    assert domains.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert (rows // 100).tolist() == domains.tolist()
    assert places.tolist() == list(range(18))
    if mode == "class_balanced":
        assert classes(rows[:6]) == classes(rows[12:]) == {0: 2, 1: 2, 2: 2}
        assert classes(rows[6:12]) == {0: 3, 2: 3}, "a class that a domain lacks is left out there"


def passes(rows: list[int], size: int) -> list[list[int]]:
    return [sorted(rows[n : n + size]) for n in range(0, len(rows) // size * size, size)]


@pytest.mark.parametrize("mode", MODES)
def test_every_image_comes_once_a_pass_freshly_shuffled(mode: str) -> None:
    this = sampler(mode, 3)
    rows = np.concatenate([this.positions(step)[0] for step in range(150)]).tolist()
    groups: list[list[int]] = [np.concatenate(ROWS).tolist()]
    if mode == "balanced":
        groups = [images.tolist() for images in ROWS]
    elif mode == "class_balanced":
        # of the first domain, with one place for each class: places of a step are shuffled
        groups = [ROWS[0][LABELS[0] == label].tolist() for label in range(3)]
    for group in groups:
        own = [row for row in rows if row in set(group)]
        assert all(one == sorted(group) for one in passes(own, len(group)))
        if len(group) > 2:
            assert own[: len(group)] != own[len(group) : 2 * len(group)]
    assert sampler(mode, 3, seed=1).positions(0)[0].tolist() != rows[:9]


@pytest.mark.parametrize("images_per_domain", [1, 4, 7])
def test_batches_that_classes_do_not_divide_even_out_over_steps(images_per_domain: int) -> None:
    this = sampler("class_balanced", images_per_domain)
    seen = Counter[int]()
    for step in range(30):
        counts = classes(this.positions(step)[0][:images_per_domain])
        each = [counts[label] for label in range(3)]
        assert max(each) - min(each) <= 1
        seen += counts
        assert max(seen.values()) - min(seen[label] for label in range(3)) <= 1
    assert set(seen.values()) == {10 * images_per_domain}


def test_classes_have_other_places_in_each_step() -> None:
    """Otherwise every second process would always get the same classes."""
    batches = [sampler("class_balanced", 3).positions(step)[0][:3] for step in range(40)]
    assert len({tuple(LABEL_OF[int(row)] for row in batch) for batch in batches}) == 6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_out_the_batch_of_one(mode: str, world: int) -> None:
    whole = sampler(mode).positions(5)
    parts = [sampler(mode).positions(5, rank, world) for rank in range(world)]
    order = np.argsort(np.concatenate([places for _, _, places in parts]))
    for number in range(3):
        together = np.concatenate([part[number] for part in parts])[order]
        assert together.tolist() == whole[number].tolist()
    if mode != "pooled":
        assert all(set(domains) == {0, 1, 2} for _, domains, _ in parts)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("images_per_domain", [4, 25])
def test_a_block_of_steps_is_its_steps_and_none_depends_on_those_before_it(
    mode: str, images_per_domain: int
) -> None:
    """Also where a step goes through a whole domain more than once, and across the places at which
    the orders of classes are drawn anew."""
    steps = range(2, 70)
    block = sampler(mode, images_per_domain, seed=3).block(steps)
    one_by_one = sampler(mode, images_per_domain, seed=3)
    assert block.tolist() == [one_by_one.positions(step)[0].tolist() for step in steps]
    fresh = sampler(mode, images_per_domain, seed=3).positions(33)[0]
    assert block[33 - steps.start].tolist() == fresh.tolist()


def test_an_epoch_is_a_pass_over_all_images() -> None:
    assert sampler("balanced", 4).steps_per_epoch == -(-len(LABEL_OF) // 12)


@pytest.mark.parametrize("mode", ["balanced", "class_balanced"])
def test_target_images_have_places_after_the_labelled_ones_and_passes_of_their_own(
    mode: str,
) -> None:
    target = np.arange(300, 305)
    this = sampler(mode, 4, target=(target, 6))
    rows, places = this.target_positions(3)
    assert places.tolist() == list(range(12, 18))
    first = [row for step in range(5) for row in this.target_positions(step)[0]]
    assert all(one == target.tolist() for one in passes(first, 5))
    halves = [this.target_positions(3, rank, 2) for rank in (0, 1)]
    both = {place: row for part in halves for row, place in zip(*part, strict=True)}
    assert both == dict(zip(places.tolist(), rows.tolist(), strict=True))
    assert this.positions(3)[0].tolist() == sampler(mode, 4).positions(3)[0].tolist()


def test_draws_are_those_of_numpys_generator() -> None:
    """Worked out by hand: places 16 and 17 of a domain of 17 lie in its first and second pass."""
    first, second = (np.random.default_rng((5, 1, epoch)).permutation(17) for epoch in (0, 1))
    expected = [100 + first[16], 100 + second[0]]
    assert sampler("balanced", 2, seed=5).positions(8)[0][2:4].tolist() == expected
