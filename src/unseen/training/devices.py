"""Where a run computes: Fabric for devices and precision, glibc for memory."""

import ctypes
import os
import platform
from collections.abc import Callable
from typing import Any

from lightning_fabric import Fabric

from unseen.config import Experiment

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def launch(experiment: Experiment, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function(fabric, *arguments)` on every device; rank 0's answer comes back.

    Several devices are processes of their own, started here or, where they are there already, by
    torchrun or SLURM. Arguments must be picklable.
    """
    devices = experiment.devices
    started = any(name in os.environ for name in ("TORCHELASTIC_RUN_ID", "SLURM_PROCID"))
    strategy = "auto" if devices.number == 1 else "ddp" if started else "ddp_spawn"
    fabric = Fabric(
        accelerator=devices.accelerator,
        devices=devices.number,
        strategy=strategy,
        precision="bf16-mixed" if experiment.precision == "bf16" else "32-true",
    )
    return fabric.launch(function, *arguments)


def is_first_process() -> bool:
    """True but for the processes that torchrun or SLURM started beside the first one."""
    return os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0"


def keep_freed_memory() -> None:
    """Let glibc keep the large blocks that a step frees, for the next step to use.

    By default they go back to the system and are faulted in again, page by page, which costs a
    CPU training step 10 to 30 % of its time. Other C libraries are left alone.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
