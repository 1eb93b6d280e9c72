"""One method that computes for many runs: their tensors have a first axis of runs, and what a run
computes is what the method computes, under `torch.func.vmap`."""

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.func import functional_call, vmap
from torch.nn import functional

from unseen.data.batch import DomainBatch, Task
from unseen.methods.base import Losses, Method, Progress
from unseen.networks.stages import Network
from unseen.settings.experiment import MethodSettings

Tensors = dict[str, Tensor]


class Bundle(NamedTuple):
    """Neighbouring streams that have as many runs each, so that they fill a rectangle."""

    streams: slice
    runs: slice
    runs_each: int


def bundles(runs_of_streams: Sequence[int]) -> list[Bundle]:
    """Of streams in the order of their number of runs; runs are numbered stream by stream."""
    found: list[Bundle] = []
    first_stream, first_run = 0, 0
    for each, group in groupby(runs_of_streams):
        number = len(list(group))
        found.append(
            Bundle(
                slice(first_stream, first_stream + number),
                slice(first_run, first_run + number * each),
                each,
            )
        )
        first_stream, first_run = first_stream + number, first_run + number * each
    return found


class StackedMethod:
    """The tensors of all runs, and one method object that computes with them."""

    def __init__(
        self, methods: Sequence[Method], settings: Sequence[MethodSettings], device: torch.device
    ) -> None:
        """`methods` differ in their own tensors and in names of domains, `settings` in numbers.
        Runs that begin alike may have the same one; the first is used from now on."""
        self.template = methods[0]
        own = [dict(own_tensors(method)) for method in methods]
        stacked = {n: torch.stack([each[n].detach() for each in own]).to(device) for n in own[0]}
        self.learning = {
            name: stacked[name].requires_grad_()
            for name, parameter in self.template.named_parameters()
            if parameter.requires_grad
        }
        self.fixed = {name: t for name, t in stacked.items() if name not in self.learning}
        self.numbers = _differing(settings, device)
        self.template.to(device)
        for module in self.template.modules():
            if type(module) is nn.Linear:
                module.__class__ = _Linear
        self._own = dict(own_tensors(self.template))
        self._entry = _Entry(self.template)

    def losses(self, batch: DomainBatch, progress: Progress, bundles: Sequence[Bundle]) -> Losses:
        """Every loss `[runs]`; the gradient of their sum is that of each run by itself."""

        def one(tensors: Tensors, numbers: Tensors, *parts: Tensor) -> Losses:
            images, labels, keys, positions, step_key = parts
            own = DomainBatch(
                images, labels, batch.domains, keys, batch.n_domains, positions, step_key
            )
            return self._call(tensors, numbers, lambda method: method.loss(own, progress))

        of_all = vmap(vmap(one, in_dims=(0, 0, *[None] * 5)))
        found = []
        for bundle in bundles:
            tensors, numbers = (
                {name: _rectangle(tensor, bundle) for name, tensor in each.items()}
                for each in (self.learning | self.fixed, self.numbers)
            )
            losses: Losses = of_all(tensors, numbers, *_part(batch, bundle.streams))
            found.append({name: values.flatten() for name, values in losses.items()})
        return {name: torch.cat([each[name] for each in found]) for name in found[0]}

    def predict(self, tensors: Tensors, runs: Tensor, images: Tensor, domain: int | None) -> Tensor:
        """Scores `[runs, images, classes]` of some runs on the same images."""

        def one(own: Tensors, numbers: Tensors) -> Tensor:
            return self._call(own, numbers, lambda method: method.predict(images, domain))

        own, numbers = (
            {name: tensor[runs] for name, tensor in each.items()}
            for each in (tensors | self.fixed, self.numbers)
        )
        return vmap(one, in_dims=0)(own, numbers)

    def of_run(self, run: int, tensors: Tensors) -> Tensors:
        """The own tensors of one run."""
        return {name: t[run].detach() for name, t in (tensors | self.fixed).items()}

    def as_run(self, run: int, tensors: Tensors, config: MethodSettings, task: Task) -> Method:
        """The template with the tensors and settings of one run, until the next call."""
        for name, tensor in self.of_run(run, tensors).items():
            self._own[name].detach().copy_(tensor)
        self.template.config, self.template.task = config, task
        return self.template

    def _call(self, tensors: Tensors, numbers: Tensors, function: Callable[[Method], Any]) -> Any:
        """A function of the method as it is with these tensors, and numbers in its settings."""
        config = self.template.config
        self.template.config = config.model_copy(update=numbers)
        try:
            named = {f"method.{name}": tensor for name, tensor in tensors.items()}
            return functional_call(self._entry, named, (function,), tie_weights=False)
        finally:
            self.template.config = config


def _part(batch: DomainBatch, streams: slice) -> tuple[Tensor, ...]:
    """The tensors of some streams' batches."""
    parts = (batch.images, batch.labels, batch.keys, batch.positions, batch.step_key)
    return tuple(part[streams] for part in parts)


def _rectangle(tensor: Tensor, bundle: Bundle) -> Tensor:
    """`[streams, runs, ...]`; where that is all there is, without a slice, whose gradient costs."""
    runs = tensor if bundle.runs == slice(0, len(tensor)) else tensor[bundle.runs]
    return runs.unflatten(0, (-1, bundle.runs_each))


def own_tensors(method: Method) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers but for those of the network's frozen part."""
    frozen = {id(t) for t in _frozen(method.network)}
    for name, tensor in method.state_dict(keep_vars=True).items():
        if id(tensor) not in frozen:
            yield name, tensor


def copy_of(network: Network) -> Network:
    """An independent network but for its frozen part, which it shares: that never changes."""
    return copy.deepcopy(network, {id(tensor): tensor for tensor in _frozen(network)})


def _frozen(network: Network) -> Iterator[Tensor]:
    for name in network.frozen_stages():
        yield from network.stage(name).state_dict(keep_vars=True).values()


def _differing(configs: Sequence[MethodSettings], device: torch.device) -> Tensors:
    """Numbers that are not the same in all settings, by name."""
    values = {name: [getattr(config, name) for config in configs] for name in dict(configs[0])}
    return {
        name: torch.tensor(numbers, dtype=torch.float32, device=device)
        for name, numbers in values.items()
        if isinstance(numbers[0], float) and len(set(numbers)) > 1
    }


class _Entry(nn.Module):
    """Lets `functional_call` reach any function of a method, not `forward` alone."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, function: Callable[[Method], Any]) -> Any:
        return function(self.method)


class _Linear(nn.Linear):
    """Where many runs see the same input, one large product instead of many small ones."""

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
