"""The learner of many runs: their tensors have a first axis of runs, and what a run computes is
what its method computes, under `torch.func.vmap`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.func import functional_call, vmap
from torch.nn import functional

from unseen.atomic import link_file
from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress
from unseen.settings.experiment import MethodSettings
from unseen.training.average import StepAverage, average_of_steps
from unseen.training.build import Run, own_tensors
from unseen.training.checkpoints import Checkpoint, save_weights
from unseen.training.groups import Bundle, bundles, streams_of
from unseen.training.optimizers import StackedOptimizer, clip, groups_by_name, schedule_factor

Tensors = dict[str, Tensor]


class ManyRuns:
    """Trains all runs in one go, with the tensors of all and one method object that computes with
    them. What a rule prefers is kept in memory, and there are no checkpoints."""

    average: StepAverage | None = None
    """Of the learning tensors of all runs at once."""

    def __init__(
        self, runs: Sequence[Run], methods: Sequence[Method], device: torch.device
    ) -> None:
        """`methods` differ in their own tensors and in names of domains, their settings in numbers.
        Runs that begin alike may have the same one; the first is used from now on."""
        self.runs, self.method, self._device = runs, methods[0], device
        self._groups = [
            groups_by_name(method, run.experiment.optimizer)
            for run, method in zip(runs, methods, strict=True)
        ]
        own = [dict(own_tensors(method)) for method in methods]
        stacked = {n: torch.stack([each[n].detach() for each in own]).to(device) for n in own[0]}
        self.learning = {
            name: stacked[name].requires_grad_()
            for name, parameter in self.method.named_parameters()
            if parameter.requires_grad
        }
        self._fixed = {name: t for name, t in stacked.items() if name not in self.learning}
        self._numbers = _differing([run.experiment.method for run in runs], device)
        self.method.to(device)
        for module in self.method.modules():
            if type(module) is nn.Linear:
                module.__class__ = _Linear
        self._own = dict(own_tensors(self.method))
        self._entry = _Entry(self.method)
        self._bundles = bundles([stream.n_runs for stream in streams_of(runs)])
        self._used = {name: tensor.detach() for name, tensor in self.learning.items()}
        """The learning tensors that predict: as they are, averaged, or preferred by a rule."""
        self._kept: dict[str, Tensors] = {}

    def start(self, steps: int) -> Checkpoint | None:
        """Makes everything ready for the first step."""
        experiments = [run.experiment for run in self.runs]
        self._optimizer = StackedOptimizer(
            self.learning, self._groups, [experiment.optimizer for experiment in experiments]
        )
        self._factors = _factors(self.runs, steps)
        self._last_factors = self._factors[0]
        longest = [experiment.clip_gradient for experiment in experiments]
        self._longest = None if longest[0] is None else torch.tensor(longest)
        if experiments[0].averaging.name != "none":
            self.average = average_of_steps(experiments[0], self.learning, steps)
        self.method.train()
        return None

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

        def one(tensors: Tensors, numbers: Tensors, *parts: Tensor) -> Losses:
            images, labels, keys, positions, step_key = parts
            own = DomainBatch(
                images, labels, batch.domains, keys, batch.n_domains, positions, step_key
            )
            return self._call(tensors, numbers, lambda method: method.loss(own, progress))

        of_all = vmap(vmap(one, in_dims=(0, 0, *[None] * 5)))
        found = []
        for bundle in self._bundles:
            tensors, numbers = (
                {name: _rectangle(tensor, bundle) for name, tensor in each.items()}
                for each in (self.learning | self._fixed, self._numbers)
            )
            losses: Losses = of_all(tensors, numbers, *_part(batch, bundle.streams))
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
        last = [list(groups.values())[-1] for groups in self._groups]
        return [group.lr * factor for group, factor in zip(last, factors, strict=True)]

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


def _part(batch: DomainBatch, streams: slice) -> tuple[Tensor, ...]:
    """Returns the tensors of some streams' batches."""
    parts = (batch.images, batch.labels, batch.keys, batch.positions, batch.step_key)
    return tuple(part[streams] for part in parts)


def _rectangle(tensor: Tensor, bundle: Bundle) -> Tensor:
    """Turns a tensor to `[streams, runs, ...]`; where that is all there is, without a slice, whose
    gradient costs."""
    runs = tensor if bundle.runs == slice(0, len(tensor)) else tensor[bundle.runs]
    return runs.unflatten(0, (-1, bundle.runs_each))


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
    columns: dict[tuple[str, int], Tensor] = {}
    of_runs = []
    for run in runs:
        schedule, epoch = run.experiment.schedule, run.sampler.steps_per_epoch
        key = (schedule.model_dump_json(), epoch)
        if key not in columns:
            values = [schedule_factor(schedule, step, steps, epoch) for step in range(steps)]
            columns[key] = torch.tensor(values, dtype=torch.float64)
        of_runs.append(columns[key])
    return torch.stack(of_runs, dim=1)


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
