"""How many jobs at a time, and which GPUs each of them sees."""

import os

import pytest
import torch

from unseen.errors import SettingsError
from unseen.sweeps import resources as machine
from unseen.sweeps.resources import Resources, assign_devices, count_workers, worker_environments


@pytest.mark.parametrize(
    ("workers", "gpus", "visible", "expected"),
    [
        (2, 1, ["0", "1"], ["0", "1"]),
        (2, 2, ["0", "1", "2", "3"], ["0,1", "2,3"]),
        (4, 0.5, ["0", "1"], ["0", "1", "0", "1"]),
        (3, 1 / 3, ["5"], ["5", "5", "5"]),
        (2, 0.4, ["GPU-aa"], ["GPU-aa", "GPU-aa"]),
        (1, 0.5, ["0", "1"], ["0"]),
    ],
)
def test_devices_of_each_worker(
    workers: int, gpus: float, visible: list[str], expected: list[str]
) -> None:
    assert assign_devices(workers, gpus, visible) == expected


@pytest.mark.parametrize(
    ("workers", "gpus", "visible", "room"),
    [(3, 0.4, ["0"], 2), (2, 2, ["0", "1", "2"], 1), (1, 1, [], 0)],
)
def test_too_few_devices(workers: int, gpus: float, visible: list[str], room: int) -> None:
    with pytest.raises(SettingsError, match=f"which have room for {room};"):
        assign_devices(workers, gpus, visible)


def test_one_and_a_half_devices() -> None:
    with pytest.raises(SettingsError, match=r"whole GPUs or a share of one, not 1\.5; try 1"):
        assign_devices(1, 1.5, ["0", "1"])


def test_workers_by_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_cores", lambda: 8)
    assert count_workers(Resources()) == 8
    assert count_workers(Resources(cpus=3)) == 2
    assert count_workers(Resources(cpus=0.5)) == 16
    assert count_workers(Resources(cpus=16)) == 1
    assert count_workers(Resources(cpus=4, workers=5)) == 5


def test_workers_by_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_cores", lambda: 64)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,6")
    found = worker_environments(Resources(gpus=0.5, cpus=2))
    assert [e["CUDA_VISIBLE_DEVICES"] for e in found] == ["3", "6", "3", "6"]
    assert {e["OMP_NUM_THREADS"] for e in found} == {"2"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    found = worker_environments(Resources(gpus=1))
    assert [e["CUDA_VISIBLE_DEVICES"] for e in found] == ["0", "1"]


def test_without_gpus_none_is_seen() -> None:
    assert (
        worker_environments(Resources(workers=2))
        == [{"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}] * 2
    )


def test_threads_of_a_share_of_a_core() -> None:
    assert [Resources(cpus=cpus).threads for cpus in (0.25, 1, 1.9, 4)] == [1, 1, 1, 4]


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSEEN_ONE", "before")
    with machine.changed_environment({"UNSEEN_ONE": "1", "UNSEEN_TWO": "2"}):
        assert (os.environ["UNSEEN_ONE"], os.environ["UNSEEN_TWO"]) == ("1", "2")
    assert os.environ["UNSEEN_ONE"] == "before"
    assert "UNSEEN_TWO" not in os.environ
