"""The learner of a single run: Fabric for devices and precision, `torch.optim`, clipping, and the
average of the weights."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from unseen import across_devices
from unseen.atomic import link_file
from unseen.data.batch import DomainBatch, every_nth
from unseen.data.styles import style_changes
from unseen.methods.base import Losses, Method, Progress
from unseen.training import checkpoints
from unseen.training.average import Average, build_average
from unseen.training.build import Run
from unseen.training.checkpoints import Checkpoint
from unseen.training.optimizers import build_optimizer, schedule_factor, set_rates


class OneRun:
    """Trains one method as it is. One that is trained already is never started."""

    optimizer: Any
    """As Fabric wraps it, which scales losses where the precision asks for it."""
    average: Average | None = None

    def __init__(self, fabric: Fabric, run: Run, method: Method) -> None:
        self.fabric, self.run, self.method = fabric, run, method
        self.module: Any = method
        """The method as Fabric wraps it: what training calls, so that gradients are shared."""

    def start(self, steps: int) -> Checkpoint | None:
        """Makes everything ready for a step; returns the checkpoint to go on from, if there is
        one."""
        experiment = self.run.experiment
        scaled = experiment.precision == "fp16"  # which no fused update knows how to undo
        optimizer = build_optimizer(self.method, experiment.optimizer, fused=not scaled)
        self.average = build_average(experiment, self.method, steps)
        file = self.run.folder.checkpoint
        checkpoint = checkpoints.load_checkpoint(file, self.method, optimizer, self.average)
        if experiment.compile:
            self.method.network.compile_stages()
        self.module, self.optimizer = self.fabric.setup(self.method, optimizer)
        self.module.train()
        if checkpoint is not None:
            self.fabric.strategy.precision.load_state_dict(checkpoint.precision)
        return checkpoint

    def save(self, about: Checkpoint) -> None:
        """Writes a checkpoint."""
        about = about._replace(precision=self.fabric.strategy.precision.state_dict())
        file = self.run.folder.checkpoint
        checkpoints.save_checkpoint(file, self.method, self.optimizer, about, self.average)

    def step(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Makes one forward and one backward, of each part of the batch where gradients are
        accumulated, and one update; returns losses by name."""
        experiment, epoch = self.run.experiment, self.run.sampler.steps_per_epoch
        set_rates(self.optimizer, schedule_factor(experiment.schedule, *progress, epoch))
        # Dropout and the like: a function of the step, so that a resume needs no generator's state
        seed = (experiment.seed << 32) + progress.step * 1021 + self.fabric.global_rank
        on_cpu = self.fabric.device.type == "cpu"  # those of absent GPUs cost as much as a step
        (torch.default_generator if on_cpu else torch).manual_seed(seed)
        losses = self._losses(batch, progress)
        self.fabric.strategy.precision.unscale_gradients(self.optimizer.optimizer)
        self.method.edit_gradients(progress)
        if experiment.clip_gradient is not None:
            torch.nn.utils.clip_grad_norm_(self.method.parameters(), experiment.clip_gradient)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.method.after_update(progress)
        if self.average is not None and not self.method.preparing:
            self.average.after_step(progress.step + 1)
        return losses

    def _forward(self, batch: DomainBatch, progress: Progress) -> Losses:
        changes = style_changes(self.run.experiment.augment, batch, across_devices.gather)
        with self.method.network.changed_inputs(changes):
            return self.module(batch, progress)

    def _losses(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Returns losses after their backward; gradients add up over parts that have equally many
        images of each domain."""
        number = self.run.experiment.devices.accumulate
        if number == 1:
            losses = self._forward(batch, progress)
            self.fabric.backward(losses["loss"])
            return losses
        found: list[Losses] = []
        for first in range(number):
            waits = self.fabric.no_backward_sync(self.module, enabled=first < number - 1)
            with waits, across_devices.on_part_of_batch():
                losses = self._forward(every_nth(batch, first, number), progress)
                self.fabric.backward(losses["loss"] / number)
            found.append({name: value.detach() for name, value in losses.items()})
        return {name: torch.stack([each[name] for each in found]).mean(0) for name in found[0]}

    def rates(self) -> list[float]:
        """Returns the learning rate that is recorded, at the last step."""
        return [self.optimizer.param_groups[-1]["lr"]]

    def finite(self) -> list[bool]:
        """Returns whether all weights are numbers."""
        finite = [parameter.isfinite().all() for parameter in self.method.parameters()]
        return [bool(torch.stack(finite).all())]

    def averaged(self) -> AbstractContextManager[None]:
        """Gives the method the averaged weights for a while, if there are any."""
        return nullcontext() if self.average is None else self.average.applied()

    def predict(self, runs: Sequence[int], images: Tensor, domain: int | None) -> Tensor:
        """Returns scores `[images, classes]`."""
        return self.method.predict(images, domain)

    def method_of(self, run: int) -> Method:
        """Returns the method with the weights that it has now."""
        return self.method

    def statistics(self, run: int) -> dict[str, Any]:
        """Returns what the method has to say at an evaluation."""
        return self.method.statistics()

    def keep(self, preferred: Mapping[str, Sequence[int]]) -> None:
        """Writes the weights for all rules that prefer them."""
        files = [self.run.folder.weights(rule) for rule, runs in preferred.items() if runs]
        if files:
            checkpoints.save_weights(files[0], self.method)
        for file in files[1:]:
            link_file(files[0], file)

    def use(self, rule: str) -> None:
        """Gives the method the weights that a rule preferred."""
        checkpoints.load_weights(self.run.folder.weights(rule), self.method)

    def write_weights(self, chosen: Mapping[int, Mapping[str, int]]) -> None:
        """Does nothing: they were written when they were preferred."""
