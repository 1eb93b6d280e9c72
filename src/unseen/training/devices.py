"""Processes of a run: on which devices and how precisely they compute, and how they are stopped."""

import ctypes
import logging
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from torch import Tensor
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from unseen import across_devices
from unseen.errors import SettingsError, UnseenError
from unseen.settings.experiment import Experiment

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
SCALING = {"cuda"}
"""Devices that train in 16-bit floats; a trained model predicts in 32 bits elsewhere."""


def launch(experiment: Experiment, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function(fabric, *arguments)` on every device; rank 0's answer comes back.

    Several devices are processes of their own, started here or, where they are there already, by
    torchrun or SLURM. Arguments must be picklable.
    """
    devices = experiment.devices
    started, nodes = _started_processes(os.environ)
    if started > 1 and started != devices.number:
        raise SettingsError(
            f"{started} processes were started for this run, but devices.number={devices.number}; "
            f"set devices.number={started}"
        )
    kind = _kind(devices.accelerator)
    if experiment.precision == "fp16" and kind not in SCALING:
        raise SettingsError(
            "precision=fp16 needs a CUDA GPU, and there is none for this run; "
            "set precision=bf16 or precision=32"
        )
    if experiment.compile and kind == "cpu":
        raise SettingsError(
            "compile=true makes steps no quicker on a processor, and there is no CUDA GPU for this "
            "run; leave it out"
        )
    strategy = "auto" if devices.number == 1 else "ddp" if started > 1 else "ddp_spawn"
    number = devices.number // nodes
    fabric = _fabric(experiment, devices.accelerator, number, num_nodes=nodes, strategy=strategy)
    try:
        begin: Callable[..., Any] = _in_process
        return fabric.launch(begin, number, function, *arguments)
    except (ProcessExitedException, ProcessRaisedException) as error:
        raise ProcessLost(error, devices.number) from error


def _in_process(fabric: Fabric, number: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Begins one of `number` processes on a machine."""
    across_devices.share_cores(number)
    return function(fabric, *arguments)


def fabric_on(device: torch.device, experiment: Experiment) -> Fabric:
    """Returns Fabric for a trained model: on its device, in the precision of its run."""
    return _fabric(experiment, device.type, [device.index or 0] if device.type == "cuda" else 1)


def _fabric(
    experiment: Experiment, accelerator: str, devices: int | list[int], **options: Any
) -> Fabric:
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # settings say the precision
    chosen, kind = experiment.precision, _kind(accelerator)
    if chosen == "fp16" and kind in SCALING:
        options["plugins"] = MixedPrecision("16-mixed", kind)
    else:
        options["precision"] = "bf16-mixed" if chosen == "bf16" else "32-true"
    return Fabric(accelerator=accelerator, devices=devices, **options)


def _kind(accelerator: str) -> str:
    """Returns `cuda` where a run would find such a GPU."""
    return "cuda" if accelerator in {"auto", "cuda"} and torch.cuda.is_available() else "cpu"


class ProcessLost(UnseenError):
    """One of several processes failed; the others were stopped, the last checkpoint stays."""

    def __init__(self, error: ProcessExitedException | ProcessRaisedException, number: int) -> None:
        how = str(error).strip().removeprefix(f"-- Process {error.error_index} terminated with the")
        if isinstance(error, ProcessExitedException) and error.exit_code < 0:
            hint = ", most often because memory ran out" if error.signal_name == "SIGKILL" else ""
            how = f"it was killed by {error.signal_name}{hint}"
        super().__init__(
            f"process {error.error_index + 1} of {number} failed, so the others were stopped: "
            f"{how}\nThe same command resumes the run from its last checkpoint, on any number "
            "of devices (devices.number=...)."
        )


def _started_processes(environment: Mapping[str, str]) -> tuple[int, int]:
    """Returns how many processes torchrun or a SLURM step started for this command, on how many
    nodes."""
    if "TORCHELASTIC_RUN_ID" in environment:
        names = ("WORLD_SIZE", "GROUP_WORLD_SIZE")
    else:
        names = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES")
    processes, nodes = (int(environment.get(name, 1)) for name in names)
    return processes, nodes if processes > 1 else 1


def is_launched() -> bool:
    """Returns whether torchrun or SLURM started several processes for this command."""
    return _started_processes(os.environ)[0] > 1


def is_first_process() -> bool:
    """True but for the processes that torchrun or SLURM started beside the first one."""
    return os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0"


def over_devices(fabric: Fabric, values: Tensor, how: Literal["sum", "max"]) -> Tensor:
    """Returns the sum or the highest of what each device has, the same on all of them."""
    if fabric.world_size == 1:
        return values
    shared = fabric.all_reduce(values, reduce_op=how)
    assert isinstance(shared, Tensor)
    return shared


def tune_malloc() -> None:
    """Lets glibc keep the large blocks that a step frees, for the next step to use.

    By default they go back to the system and are faulted in again, page by page, which costs a
    CPU training step 10 to 30 % of its time. Other C libraries are left alone.
    """
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


class Interrupted(UnseenError):
    """The run was asked to stop. Alone it has saved its state, in a stack it starts over."""

    def __init__(self, folder: Path, step: int, signal_number: int, alone: bool = True) -> None:
        super().__init__(
            f"stopped at step {step}; everything is saved.\n"
            f"Continue with the same command, or with: unseen train {folder}"
            if alone
            else f"stopped at step {step} of runs that train together, which will start over: give "
            f"the same command again. The first of them is {folder}"
        )
        self.exit_code = 128 + signal_number
        self._arguments = (folder, step, signal_number, alone)

    def __reduce__(self) -> tuple[Any, ...]:
        return Interrupted, self._arguments


class StopFlag:
    """The signal that arrived, or 0."""

    signal_number = 0


@contextmanager
def stop_requests() -> Iterator[StopFlag]:
    """Within this context, a first signal sets the flag; a second Ctrl-C ends at once."""
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag  # only the main thread can be told of signals
        return

    def remember(number: int, frame: FrameType | None) -> None:
        if flag.signal_number and number == signal.SIGINT:
            raise KeyboardInterrupt
        flag.signal_number = number

    watched = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, remember) for number in watched}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
