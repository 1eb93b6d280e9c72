"""Work on Ray: on this machine, or on a cluster that is running already."""

import logging
import math
import os
import signal
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from unseen.data.dataset import OpenDatasets
from unseen.errors import UnseenError
from unseen.optional import require
from unseen.sweeps import workers
from unseen.sweeps.workers import SECONDS, Ended, Job, Outcome, Resources

Item = TypeVar("Item")
Result = TypeVar("Result")

_LEAST_IN_FLIGHT = 64
"""On a cluster, which may grow when it sees that there is more to do."""
_OBJECT_STORE = 100 * 2**20
"""Bytes. Only settings and replies pass through Ray; images and records are on disk."""


@contextmanager
def ray_pool(resources: Resources) -> Iterator["RayPool"]:
    with connected(resources) as ray:
        yield RayPool(ray, resources)


@contextmanager
def connected(resources: Resources) -> Iterator[ModuleType]:
    """Use the cluster, or a quiet Ray on this machine that ends with the command. Ray would leave a
    handler for SIGTERM behind."""
    ray = require("ray", extra="ray")
    if ray.is_initialized():
        yield ray
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        _connect(ray, resources)
        yield ray
    finally:
        ray.shutdown()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _connect(ray: ModuleType, resources: Resources) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if resources.address is None:
        cores = math.ceil(len(workers.worker_environments(resources)) * resources.cpus)
        local = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE}
        with workers.changed_environment({"RAY_USAGE_STATS_ENABLED": "0"}):
            ray.init(address="local", num_cpus=cores, **local, **quiet)
        return
    try:
        ray.init(address=resources.address, **quiet)
    except ConnectionError as error:
        raise UnseenError(
            f"no Ray cluster answers at {resources.address}; 'ray start --head' starts one, and "
            "without an address Ray runs on this machine. A cluster that asks for a token, as "
            "Ray's do by default, gets it with RAY_AUTH_MODE=token set here and the head's "
            "~/.ray/auth_token at hand (or in RAY_AUTH_TOKEN)"
        ) from error


def map_on_ray(
    resources: Resources, work: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield what a function returns for each item, in order. What a lost node was doing is done
    again on another one, `retries` times."""
    with connected(resources) as ray:
        remote = ray.remote(work).options(
            num_cpus=resources.cpus,
            max_retries=resources.retries,
            runtime_env={"env_vars": worker_environment(resources)},
        )
        following, most = iter(items), _in_flight(ray, resources)
        waiting = deque(remote.remote(item) for item in islice(following, most))
        while waiting:
            try:
                result = ray.get(waiting.popleft())
            except ray.exceptions.RayTaskError as error:  # raised by the work itself, not by Ray
                raise error.cause if isinstance(error.cause, UnseenError) else error from None
            except ray.exceptions.RayError as error:
                raise UnseenError(f"a process on Ray was lost ({error}); try again") from error
            waiting.extend(remote.remote(item) for item in islice(following, 1))
            yield result


class RayPool:
    """Jobs as Ray tasks, with the CPUs and GPUs (or shares of one) that each needs.

    A node that is lost counts as a process that died. All nodes must see the folder of runs.
    """

    status = ""

    def __init__(self, ray: ModuleType, resources: Resources) -> None:
        self._ray = ray
        self._threads = resources.threads
        self._in_flight = _in_flight(ray, resources)
        self._under_way: dict[Any, Job] = {}
        self._remote = ray.remote(train_there).options(
            num_cpus=resources.cpus,
            num_gpus=resources.gpus,
            max_retries=0,  # the ledger decides
            runtime_env={"env_vars": worker_environment(resources)},
        )

    @property
    def has_room(self) -> bool:
        return len(self._under_way) < self._in_flight

    def start(self, job: Job) -> None:
        absolute = job._replace(folders=tuple(path.absolute() for path in job.folders))
        place = (str(Path.cwd()), tuple(sys.argv))
        self._under_way[self._remote.remote(*place, absolute, self._threads)] = job

    def wait(self) -> Ended:
        """Return jobs that have ended, by a reply or by the loss of their process."""
        if not self._under_way:
            time.sleep(SECONDS)
            return []
        ready, _ = self._ray.wait(list(self._under_way), num_returns=1, timeout=SECONDS)
        ended: Ended = []
        for reference in ready:
            try:
                outcome = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                first, _, _ = str(error).strip().partition("\n")
                how = f"{type(error).__name__}: {first}"
                outcome = Outcome("lost", f"the process that trained it was lost ({how})")
            ended.append((self._under_way.pop(reference), outcome))
        return ended

    def ask_to_stop(self, force: bool) -> None:
        """Ray does in each process what Ctrl-C would. One that does not react, as while it loads
        packages, is ended by `force`."""
        for reference in self._under_way:
            self._ray.cancel(reference, force=force)


def train_there(folder: str, command: Sequence[str], job: Job, threads: int) -> Outcome:
    """One job, in a process of Ray's, which then stands where the command was given: relative paths
    and the recorded command are those of the command."""
    if Path(folder).is_dir():
        os.chdir(folder)
    sys.argv = list(command)
    return workers.train_silently(job, threads, OpenDatasets())


def worker_environment(resources: Resources) -> dict[str, str]:
    """What must be the same in Ray's processes as here: data, the user's modules, threads."""
    installed = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "purelib", "platlib"))
    modules = [str(Path(entry).absolute()) for entry in sys.path]
    modules = [entry for entry in modules if not entry.startswith(installed)]
    chosen = {name: value for name, value in os.environ.items() if name.startswith("UNSEEN_")}
    chosen["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(modules))
    chosen["OMP_NUM_THREADS"] = str(resources.threads)
    if not resources.gpus:
        chosen["CUDA_VISIBLE_DEVICES"] = ""
    return chosen


def _in_flight(ray: ModuleType, resources: Resources) -> int:
    """Enough to keep all nodes busy, and no more: a plan may have thousands of runs."""
    if resources.workers is not None or resources.address is None:
        return workers.count_workers(resources)
    return max(_LEAST_IN_FLIGHT, 2 * int(ray.cluster_resources().get("CPU", 0) / resources.cpus))
