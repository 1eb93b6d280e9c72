"""The sampler is a pure function of the step."""

import numpy as np
import pytest

from unseen.data.sampling import Sampler

DOMAINS = [np.arange(0, 10), np.arange(100, 107), np.arange(200, 223)]


def sampler(mode: str = "balanced", images_per_domain: int = 4, seed: int = 0) -> Sampler:
    return Sampler(DOMAINS, images_per_domain, mode, seed)  # type: ignore[arg-type]


def test_a_balanced_batch_has_as_many_images_of_each_domain_domain_after_domain() -> None:
    rows, domains, places = sampler().positions(3)
    assert domains.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert (rows // 100).tolist() == domains.tolist()
    assert places.tolist() == list(range(12))


@pytest.mark.parametrize("mode", ["balanced", "pooled"])
def test_every_image_comes_once_a_pass(mode: str) -> None:
    this = sampler(mode)
    rows = np.concatenate([this.positions(step)[0] for step in range(60)])
    for images in DOMAINS:
        own = rows[np.isin(rows, images)]
        whole = len(own) // len(images) * len(images)
        passes = own[:whole].reshape(-1, len(images))
        if mode == "balanced":
            assert all(sorted(one) == images.tolist() for one in passes)
    if mode == "pooled":
        everything = sorted(np.concatenate(DOMAINS).tolist())
        first_pass = [row for step in range(4) for row in sampler(mode).positions(step)[0]]
        assert sorted(first_pass[:40]) == everything


def test_passes_are_shuffled_anew_and_seeds_differ() -> None:
    this = sampler(images_per_domain=10)
    first, second = this.positions(0)[0][:10], this.positions(1)[0][:10]
    assert sorted(first) == sorted(second)
    assert first.tolist() != second.tolist()
    assert sampler(seed=1).positions(0)[0].tolist() != sampler().positions(0)[0].tolist()


@pytest.mark.parametrize("mode", ["balanced", "pooled"])
@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_out_the_batch_of_one(mode: str, world: int) -> None:
    whole, whole_domains, whole_places = sampler(mode, 6).positions(5)
    parts = [sampler(mode, 6).positions(5, rank, world) for rank in range(world)]
    order = np.argsort(np.concatenate([places for _, _, places in parts]))
    assert np.concatenate([p for _, _, p in parts])[order].tolist() == whole_places.tolist()
    assert np.concatenate([r for r, _, _ in parts])[order].tolist() == whole.tolist()
    assert np.concatenate([d for _, d, _ in parts])[order].tolist() == whole_domains.tolist()
    if mode == "balanced":
        assert all(set(domains) == {0, 1, 2} for _, domains, _ in parts)


def test_an_epoch_is_a_pass_over_all_images() -> None:
    assert sampler().steps_per_epoch == -(-40 // 12)


def test_target_images_have_places_after_the_labelled_ones_and_passes_of_their_own() -> None:
    target = np.arange(300, 305)
    this = Sampler(DOMAINS, 4, "balanced", 0, (target, 6))
    rows, places = this.target_positions(0)
    assert places.tolist() == list(range(12, 18))
    first = [row for step in range(5) for row in this.target_positions(step)[0]]
    for start in range(0, 30, 5):
        assert sorted(first[start : start + 5]) == target.tolist()
    halves = [this.target_positions(3, rank, 2) for rank in (0, 1)]
    both = {place: row for part in halves for row, place in zip(*part, strict=True)}
    rows, places = this.target_positions(3)
    assert both == dict(zip(places.tolist(), rows.tolist(), strict=True))
    assert this.positions(3)[0].tolist() == sampler().positions(3)[0].tolist()


@pytest.mark.parametrize("mode", ["balanced", "pooled"])
@pytest.mark.parametrize("images_per_domain", [4, 25])
def test_a_block_of_steps_is_its_steps(mode: str, images_per_domain: int) -> None:
    """Also where a step goes through a whole domain more than once."""
    this, other = (sampler(mode, images_per_domain, seed=3) for _ in range(2))
    block = this.block(range(2, 9))
    assert block.tolist() == [other.positions(step)[0].tolist() for step in range(2, 9)]


def test_draws_are_those_of_numpys_generator() -> None:
    """Worked out by hand: places 6 and 7 of a domain of 7 lie in its first and its second pass."""
    first, second = (np.random.default_rng((5, 1, epoch)).permutation(7) for epoch in (0, 1))
    expected = [100 + first[6], 100 + second[0]]
    assert sampler(images_per_domain=2, seed=5).positions(3)[0][2:4].tolist() == expected
