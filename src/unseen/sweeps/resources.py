"""Where jobs are trained and with what: workers, threads and GPUs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from unseen.errors import SettingsError


class Resources(NamedTuple):
    """Where jobs are trained, with what, and how often a failed one is tried again."""

    on: Literal["here", "ray"] = "here"
    workers: int | None = None
    """Jobs at once on this machine; empty: as many as the cores allow; 0: in this process."""
    cpus: float = 1
    """Cores of a job, and its threads: results depend on their number in the last bit."""
    gpus: float = 0
    """GPUs of a job; half of one is shared by two jobs. 0: it computes on the CPU."""
    retries: int = 1
    """How often a run that failed is tried again."""
    address: str | None = None
    """The address of a running Ray cluster; empty: Ray on this machine."""

    @property
    def threads(self) -> int:
        """The threads of one job. The same everywhere, so that results are the same."""
        return max(1, int(self.cpus))


def count_workers(resources: Resources) -> int:
    """As many as were asked for, or as the cores and GPUs of this machine allow."""
    if resources.workers is not None:
        return resources.workers
    room = _cores() / resources.cpus
    if resources.gpus:
        room = min(room, _jobs_on_devices(len(visible_devices()), resources.gpus))
    return max(1, int(room))


def worker_environments(resources: Resources) -> list[dict[str, str]]:
    """The environment variables of each worker: its number of threads, and its GPUs."""
    number = count_workers(resources)
    shared = {"OMP_NUM_THREADS": str(resources.threads)}
    devices = [""] * number
    if resources.gpus:
        devices = assign_devices(number, resources.gpus, visible_devices())
    return [shared | {"CUDA_VISIBLE_DEVICES": visible} for visible in devices]


def assign_devices(workers: int, gpus: float, visible: Sequence[str]) -> list[str]:
    """CUDA_VISIBLE_DEVICES of each worker: GPUs of its own, or a share of one."""
    room = _jobs_on_devices(len(visible), gpus)
    if workers > room:
        raise SettingsError(
            f"{workers} jobs at once with {gpus:g} GPUs each need more than the {len(visible)} "
            f"GPUs there are, which have room for {room}; ask for fewer jobs or smaller shares"
        )
    if gpus < 1:
        return [visible[worker % len(visible)] for worker in range(workers)]
    each = int(gpus)
    return [",".join(visible[each * worker : each * (worker + 1)]) for worker in range(workers)]


def _jobs_on_devices(devices: int, gpus: float) -> int:
    """How many jobs fit at a time."""
    if gpus > 1 and gpus != int(gpus):
        raise SettingsError(
            f"a job gets whole GPUs or a share of one, not {gpus:g}; try {int(gpus)} or 0.5"
        )
    return int(devices // gpus) if gpus >= 1 else devices * int(1 / gpus + 1e-9)


def visible_devices() -> list[str]:
    """The GPUs that this process may use, by the names that CUDA_VISIBLE_DEVICES has for them."""
    import torch

    number = torch.cuda.device_count()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = chosen.split(",") if chosen is not None else [str(i) for i in range(number)]
    return [name.strip() for name in names[:number]]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started in this context inherit the changes."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
