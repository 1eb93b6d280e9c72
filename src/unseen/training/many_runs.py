"""The learner of many runs: their tensors have a first axis of runs, and what a run computes is
what its method computes, under `torch.func.vmap`.

Runs with the same seed and training domains see the same images, which are read once: a stream.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.func import functional_call, vmap
from torch.nn import functional

from unseen.atomic import link_file
from unseen.data.batch import DomainBatch
from unseen.data.features import StoredFeatures
from unseen.data.randomness import image_keys, step_key
from unseen.methods.base import Losses, Method, Progress
from unseen.settings.experiment import MethodSettings, ScheduleSettings
from unseen.training.average import build_average
from unseen.training.build import Run, own_tensors
from unseen.training.checkpoints import Checkpoint, save_weights
from unseen.training.optimizers import StackedOptimizer, clip, groups_by_name, schedule_factor

Tensors = dict[str, Tensor]
_OF_STREAMS = ("images", "labels", "keys", "positions", "step_key")
"""Tensors of a batch that have a first axis of streams."""
_AXES = DomainBatch(*(0 if name in _OF_STREAMS else None for name in DomainBatch._fields))  # pyright: ignore[reportArgumentType]
_STEPS_AT_ONCE = 64
"""Steps whose image positions are drawn in one go."""


class ManyRuns:
    """Trains all runs in one go, with the tensors of all and one method object that computes with
    them. What a rule prefers is kept in memory, and there are no checkpoints."""

    def __init__(
        self, runs: Sequence[Run], methods: Sequence[Method], device: torch.device, steps: int
    ) -> None:
        """`methods` differ in their own tensors and in names of domains, their settings in numbers.
        The first is used from now on. Runs are in the order of their streams."""
        self.runs, self.method, self._device = runs, methods[0], device
        experiments = [run.experiment for run in runs]
        groups = [
            groups_by_name(method, experiment.optimizer)
            for method, experiment in zip(methods, experiments, strict=True)
        ]
        own = [dict(own_tensors(method)) for method in methods]
        stacked = {n: torch.stack([each[n].detach() for each in own]).to(device) for n in own[0]}
        self.learning = {
            name: stacked[name].requires_grad_()
            for name, parameter in self.method.named_parameters()
            if parameter.requires_grad
        }
        self._fixed = {name: t for name, t in stacked.items() if name not in self.learning}
        self._numbers = _differing([experiment.method for experiment in experiments], device)
        self.method.to(device).train()
        for module in self.method.modules():
            if type(module) is nn.Linear:
                module.__class__ = _Linear
        self._own = dict(own_tensors(self.method))
        self._entry = _Entry(self.method)
        self._bundles = bundles([len(stream) for stream in streams_of(runs)])
        self._used = {name: tensor.detach() for name, tensor in self.learning.items()}
        """The learning tensors that predict: as they are, averaged, or preferred by a rule."""
        self._kept: dict[str, Tensors] = {}
        optimizers = [experiment.optimizer for experiment in experiments]
        self._optimizer = StackedOptimizer(self.learning, groups, optimizers)
        self._recorded_lr = [list(each.values())[-1]["lr"] for each in groups]
        self._factors = _factors(runs, steps)
        self._last_factors = self._factors[0]
        longest = [experiment.clip_gradient for experiment in experiments]
        self._longest = None if longest[0] is None else torch.tensor(longest)
        self.average = build_average(experiments[0], self.method, steps, self.learning)
        """Of the learning tensors of all runs at once."""

    def save(self, about: Checkpoint) -> None:
        """Runs that train together start over."""

    def step(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Makes one forward, one backward, one update of all runs; returns losses `[runs]` by
        name."""
        losses = self._losses(batch, progress)
        found = torch.autograd.grad(losses["loss"].sum(), list(self.learning.values()))
        gradients = dict(zip(self.learning, found, strict=True))
        if self._longest is not None:
            clip(gradients, self._longest)
        self._last_factors = self._factors[progress.step]
        self._optimizer.step(gradients, self._last_factors)
        if self.average is not None:
            self.average.after_step(progress.step + 1)
        return losses

    def _losses(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Returns losses `[runs]`; the gradient of their sum is that of each run by itself."""

        def one(tensors: Tensors, numbers: Tensors, own: DomainBatch) -> Losses:
            return self._call(tensors, numbers, lambda method: method.loss(own, progress))

        of_all = vmap(vmap(one, in_dims=(0, 0, None)), in_dims=(0, 0, _AXES))
        found = []
        for bundle in self._bundles:
            tensors, numbers = (
                {name: _rectangle(tensor, bundle) for name, tensor in each.items()}
                for each in (self.learning | self._fixed, self._numbers)
            )
            part = {name: getattr(batch, name)[bundle.streams] for name in _OF_STREAMS}
            losses: Losses = of_all(tensors, numbers, batch._replace(**part))
            found.append({name: values.flatten() for name, values in losses.items()})
        return {name: torch.cat([each[name] for each in found]) for name in found[0]}

    def _call(self, tensors: Tensors, numbers: Tensors, function: Callable[[Method], Any]) -> Any:
        """Calls a function of the method as it is with these tensors, and numbers in its
        settings."""
        config = self.method.config
        self.method.config = config.model_copy(update=numbers)
        try:
            named = {f"method.{name}": tensor for name, tensor in tensors.items()}
            return functional_call(self._entry, named, (function,), tie_weights=False)
        finally:
            self.method.config = config

    def rates(self) -> list[float]:
        """Returns the learning rate of each run that is recorded, at the last step."""
        factors = self._last_factors.tolist()
        return [lr * factor for lr, factor in zip(self._recorded_lr, factors, strict=True)]

    def finite(self) -> list[bool]:
        """Returns whether all weights are numbers, for each run."""
        finite = [tensor.isfinite().flatten(1).all(dim=1) for tensor in self.learning.values()]
        return torch.stack(finite).all(dim=0).tolist()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Lets averaged weights predict for a while, if there are any."""
        before = self._used
        if self.average is not None and self.average.model is not None:
            self._used = self.average.model.values
        try:
            yield
        finally:
            self._used = before

    def predict(self, runs: Sequence[int], images: Tensor, domain: int | None) -> Tensor:
        """Returns scores `[runs, images, classes]` of some runs on the same images."""

        def one(own: Tensors, numbers: Tensors) -> Tensor:
            return self._call(own, numbers, lambda method: method.predict(images, domain))

        numbers_of_runs = torch.tensor(runs, device=self._device)
        own, numbers = (
            {name: tensor[numbers_of_runs] for name, tensor in each.items()}
            for each in (self._used | self._fixed, self._numbers)
        )
        return vmap(one, in_dims=0)(own, numbers)

    def method_of(self, run: int) -> Method:
        """Returns the method with the tensors and settings of one run, until the next call."""
        for name, tensor in (self._used | self._fixed).items():
            self._own[name].detach().copy_(tensor[run].detach())
        self.method.config = self.runs[run].experiment.method
        self.method.task = self.runs[run].task
        return self.method

    def statistics(self, run: int) -> dict[str, Any]:
        """Returns what the method of a run has to say at an evaluation."""
        if type(self.method).statistics is Method.statistics:
            return {}
        return self.method_of(run).statistics()

    def keep(self, preferred: Mapping[str, Sequence[int]]) -> None:
        """Remembers the weights of the runs that a rule prefers, by rule."""
        for rule, runs in preferred.items():
            if rule not in self._kept:
                self._kept[rule] = {name: tensor.clone() for name, tensor in self._used.items()}
            for name, tensor in self._used.items():
                self._kept[rule][name][runs] = tensor[runs]

    def use(self, rule: str) -> None:
        """Lets the weights predict that a rule preferred."""
        self._used = self._kept[rule]

    def write_weights(self, chosen: Mapping[int, Mapping[str, int]]) -> None:
        """Writes the files of weights of each run; rules that chose the same step share one."""
        for number, steps in chosen.items():
            folder = self.runs[number].folder
            written: dict[int, Path] = {}
            for rule, step in steps.items():
                file = folder.weights(rule)
                if step in written:
                    link_file(written[step], file)
                else:
                    self.use(rule)
                    save_weights(file, self.method_of(number))
                    written[step] = file


def in_streams(runs: Sequence[Run]) -> list[Run]:
    """Returns runs in the order of the streams that they belong to, streams in that of their
    size."""
    members: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        members.setdefault(_images_of(run), []).append(run)
    return list(chain.from_iterable(sorted(members.values(), key=len)))


def streams_of(runs: Sequence[Run]) -> list[list[Run]]:
    """Returns the runs of each stream, where they are in order."""
    return [list(members) for _, members in groupby(runs, _images_of)]


def _images_of(run: Run) -> tuple[int, tuple[str, ...]]:
    return run.experiment.seed, run.task.domains


class Bundle(NamedTuple):
    """Neighbouring streams that have as many runs each, so that they fill a rectangle."""

    streams: slice
    runs: slice
    runs_each: int


def bundles(runs_of_streams: Sequence[int]) -> list[Bundle]:
    """Returns the bundles of streams in the order of their number of runs; runs are numbered stream
    by stream."""
    found: list[Bundle] = []
    stream, run = 0, 0
    for each, group in groupby(runs_of_streams):
        streams = len(list(group))
        places = (slice(stream, stream + streams), slice(run, run + streams * each))
        found.append(Bundle(*places, each))
        stream, run = stream + streams, run + streams * each
    return found


def _rectangle(tensor: Tensor, bundle: Bundle) -> Tensor:
    """Turns a tensor to `[streams, runs, ...]`; where that is all there is, without a slice, whose
    gradient costs."""
    runs = tensor if bundle.runs == slice(0, len(tensor)) else tensor[bundle.runs]
    return runs.unflatten(0, (-1, bundle.runs_each))


def stacked_batches(
    features: StoredFeatures, runs: Sequence[Run], steps: range, device: torch.device
) -> Iterator[DomainBatch]:
    """Yields a step's batches of all streams in one: a first axis of streams, but for `domains`,
    which are the same in all balanced batches."""
    streams = [members[0] for members in streams_of(runs)]
    sampler = streams[0].sampler
    domains = torch.from_numpy(sampler.positions(0)[1]).to(device)
    seeds = sorted({run.experiment.seed for run in streams})
    of_stream = torch.tensor([seeds.index(run.experiment.seed) for run in streams])
    places = torch.arange(sampler.batch_size)
    for start in range(0, len(steps), _STEPS_AT_ONCE):
        block = steps[start : start + _STEPS_AT_ONCE]
        positions = np.stack([run.sampler.block(block) for run in streams], axis=1)
        for step, rows in zip(block, positions, strict=True):  # [streams, batch]
            keys = torch.stack([image_keys(seed, step, places) for seed in seeds])[of_stream]
            step_keys = torch.stack([step_key(seed, step) for seed in seeds])[of_stream]
            images = features.training_batch(rows.ravel(), keys.ravel()).unflatten(0, rows.shape)
            labels = torch.from_numpy(features.index.labels[rows])
            tensors = (images, labels, keys, torch.from_numpy(rows), step_keys)
            images, labels, keys, found, step_keys = (tensor.to(device) for tensor in tensors)
            yield DomainBatch(images, labels, domains, keys, sampler.n_domains, found, step_keys)


def _differing(configs: Sequence[MethodSettings], device: torch.device) -> Tensors:
    """Returns the numbers that are not the same in all settings, by name."""
    values = {name: [getattr(config, name) for config in configs] for name in dict(configs[0])}
    return {
        name: torch.tensor(numbers, dtype=torch.float32, device=device)
        for name, numbers in values.items()
        if isinstance(numbers[0], float) and len(set(numbers)) > 1
    }


def _factors(runs: Sequence[Run], steps: int) -> Tensor:
    """Returns what the schedules multiply learning rates with, `[steps, runs]`."""

    @cache
    def column(schedule: ScheduleSettings, epoch: int) -> Tensor:
        factors = [schedule_factor(schedule, step, steps, epoch) for step in range(steps)]
        return torch.tensor(factors, dtype=torch.float64)

    columns = (
        column(run.experiment.schedule, run.sampler.steps_per_epoch)  # pyright: ignore[reportArgumentType]
        for run in runs
    )
    return torch.stack(list(columns), dim=1)


class _Entry(nn.Module):
    """Lets `functional_call` reach any function of a method, not `forward` alone."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, function: Callable[[Method], Any]) -> Any:
        return function(self.method)


class _Linear(nn.Linear):
    """Computes one large product where many runs see the same input."""

    def forward(self, input: Tensor) -> Tensor:
        return _Product.apply(input, self.weight, self.bias)  # pyright: ignore[reportReturnType]


class _Product(Function):
    """`functional.linear`; under vmap, gradients are those of the operations below."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        """Weights have their axis of runs in front; the input has one only if runs differ in it."""
        x, weight, bias = args
        if in_dims[0] is None:
            every_bias = None if bias is None else bias.flatten()
            rows = functional.linear(x, weight.flatten(0, 1), every_bias)
            return rows.unflatten(-1, (info.batch_size, -1)), x.ndim - 1
        x = x.movedim(in_dims[0], 0)
        product = x.flatten(1, -2) @ weight.transpose(1, 2)
        if bias is not None:
            product = product + bias.unsqueeze(1)
        return product.unflatten(1, x.shape[1:-1]), 0
