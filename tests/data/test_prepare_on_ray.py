import os
import signal
from functools import partial
from pathlib import Path

import pytest
from tests.data.test_prepare import folder, kept_bytes

from unseen.data import decoding
from unseen.data.decoding import Shard, make_shard
from unseen.data.prepare import prepare
from unseen.errors import DataError
from unseen.sweeps.ray import map_on_ray
from unseen.sweeps.workers import Resources


def die_once(shard: Shard) -> None:
    """What makes shards, but killed the first time."""
    trace = shard.file.with_name("died")
    if not trace.exists():
        trace.parent.mkdir(exist_ok=True)
        trace.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    make_shard(shard)


def test_ray_makes_the_same_bytes_though_a_worker_is_killed(
    tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(folder(tree), 8)
    alone = kept_bytes(cache)
    monkeypatch.setattr(decoding, "SHARD_BYTES", 5 * 8 * 8 * 3)
    monkeypatch.setattr(decoding, "make_shard", die_once)
    monkeypatch.setenv("UNSEEN_CACHE", str(cache.with_name("other")))
    workers = partial(map_on_ray, Resources("ray", 1))
    prepare(folder(tree), 8, workers=workers)
    assert kept_bytes(cache.with_name("other")) == alone
    for file in tree.rglob("*.png"):
        file.write_bytes(b"no image")
    with pytest.raises(DataError, match="12 images cannot be used"):
        prepare(folder(tree), 8, workers=workers)
