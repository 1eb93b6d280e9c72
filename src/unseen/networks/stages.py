"""A network as named stages, which runs in parts, is cut, copied and frozen at their names."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from unseen.errors import SettingsError, unknown_name
from unseen.networks.layers import hold_batch_norm


class Tail(nn.Sequential):
    """The last stages of a network on their own; frozen batch norm stays frozen."""

    def __init__(
        self, stages: dict[str, nn.Module], new: Iterable[str], batch_norm_frozen: bool
    ) -> None:
        super().__init__(OrderedDict(stages))
        self._new = tuple(new)
        self.batch_norm_frozen = batch_norm_frozen

    def new_layers(self) -> list[nn.Module]:
        """Return the copies of the network's `new_stages`, and what took the place of a stage."""
        return [self.get_submodule(key) for key in self._new]

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.batch_norm_frozen:
            hold_batch_norm(self)
        return self


DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
Change = Callable[[Tensor, Tensor | None], Tensor]
"""Activations, and which rows of the batch they belong to (None: all), to other ones."""


class ImageInput(NamedTuple):
    """What a network expects to see: square RGB images, normalised in units of [0, 1] pixels."""

    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Network(nn.Module):
    """Runs as a whole or in part: `run(x, until=site)` and `run(h, since=site)` make `forward(x)`.

    `new_stages` are those whose weights did not come with a pretrained file, `mask_sites` the
    paper's, `original_names` leads from tensor names of the library it comes from to those here.
    """

    def __init__(
        self,
        stages: Mapping[str, nn.Module],
        expects: ImageInput,
        mask_sites: tuple[str, ...],
        original: Mapping[str, Tensor] | None = None,
    ) -> None:
        """`original`: the tensors under their library's names, as `state_dict(keep_vars=True)`."""
        super().__init__()
        self.image_size, self.mean, self.std = expects
        self.new_stages: tuple[str, ...] = ()
        self.batch_norm_frozen = False
        self._changes: Mapping[str, Change] = {}
        self._rows: Tensor | None = None
        self.frozen_until: str | None = None
        self._lay_out(stages, original or {})
        self.head = self.names[-1]
        self.mask_sites = tuple(self._known(site) for site in mask_sites)

    def forward(self, images: Tensor) -> Tensor:
        return self.run(images)

    def run(self, x: Tensor, since: str | None = None, until: str | None = None) -> Tensor:
        """Run the stages from `since` on and before `until`, whose input is the result.

        Stored features pass for images: they enter where the frozen part ends.
        """
        if since is None and self.holds_features(x):
            if self.frozen_until not in self.names:  # all that learns was cut off
                return x
            since = self.frozen_until
        for name in self._between(since, until):
            change = self._changes.get(name)
            x = self.stages[module_key(name)](x if change is None else change(x, self._rows))
        return x

    def features_and_scores(self, x: Tensor, site: str | None = None) -> tuple[Tensor, Tensor]:
        """Run the network, and return the activation at a site (the classifier's), too."""
        features = self.run(x, until=site or self.head)
        return features, self.run(features, since=site or self.head)

    @contextmanager
    def changed_inputs(self, changes: Mapping[str, Change]) -> Generator[None]:
        """Inside, the input of each named stage is changed first: for training steps."""
        self._changes = changes
        try:
            yield
        finally:
            self._changes = {}

    @contextmanager
    def on_rows(self, rows: Tensor) -> Generator[None]:
        """Inside, the network runs on these rows of the batch, and on nothing else."""
        self._rows = rows
        try:
            yield
        finally:
            self._rows = None

    def start(self, x: Tensor) -> Tensor:
        """Turn images to features by the frozen part alone. Features stay, and so do images where
        nothing is frozen; `run` goes on from either."""
        if self.frozen_until is None or self.holds_features(x):
            return x
        return self.run(x, until=self.frozen_until if self.frozen_until in self.names else None)

    def holds_features(self, x: Tensor) -> bool:
        """Whether a batch has the shape of stored features; images never do."""
        return self.frozen_until is not None and x.shape[1:] == self.input_shapes[self.frozen_until]

    def divide(self, name: str) -> None:
        """Let a block inside a stage begin a stage of its own, so that its input is a site, too:
        `layer4.2` is block 2 of `layer4`, and not its first one. Where there is no such block,
        nothing happens; the last stage, the classifier, stays whole. Tensors keep their last
        names."""
        outer, _, block = name.rpartition(".")
        stages: dict[str, nn.Module] = {}
        for stage in self.names:
            stages[stage] = module = self.stage(stage)
            blocks = [key for key, _ in module.named_children()]
            # the latter: divided before
            of_outer = stage != self.names[-1] and outer in (stage, stage.rpartition(".")[0])
            if of_outer and type(module) is nn.Sequential and block in blocks[1:]:
                start = blocks.index(block)
                stages |= {stage: module[:start], name: module[start:]}
        if name not in self.names and outer in self.names and name in stages:
            tensors, names = self.state_dict(keep_vars=True), self.original_names
            # without those of stages that were cut off
            original = {there: tensors[here] for there, here in names.items() if here in tensors}
            self._lay_out(stages, original)

    def freeze(self, until: str) -> None:
        """Freeze the stages before `until`: they never learn again and run as in prediction."""
        self.divide(until)
        if until == self.names[0]:
            raise SettingsError(f"network.freeze_until={until} is the first stage: none is frozen")
        if self.input_shapes[self._known(until)] == self.input_shapes[self.names[0]]:
            raise SettingsError(
                f"network.freeze_until={until}: features there have the shape of images; "
                "choose a later stage"
            )
        self.frozen_until = until
        frozen = self.frozen_stages()
        self.mask_sites = tuple(s for s in self.mask_sites if s not in frozen) or (self.head,)
        for name in frozen:
            self.stage(name).requires_grad_(False)
        self.train(self.training)

    def clone(self) -> "Network":
        """Return an independent copy of the part that learns; it takes what `start` gives."""
        twin = copy.deepcopy(self)
        for name in twin.frozen_stages():
            del twin.stages[module_key(name)]
        twin.names = tuple(name for name in self.names if name not in self.frozen_stages())
        twin.frozen_until = None
        return twin

    def stage(self, name: str) -> nn.Module:
        return self.stages[module_key(self._known(name))]

    def in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the named stages, once each, as the network runs them; blocks become stages."""
        wanted = tuple(names)
        for name in wanted:
            self.divide(name)
            self._learning(name)
        return tuple(name for name in self.names if name in wanted)

    def new_layers(self) -> list[nn.Module]:
        """Return the stages whose weights did not come with a pretrained file."""
        return [self.stage(name) for name in self.new_stages]

    def clone_tail(self, since: str, head: nn.Module | None = None) -> Tail:
        """Return an independent copy of the stages from `since` on, which knows which of them are
        new; with another classifier, if one is given."""
        self._learning(since)
        names = self._between(since, None)
        stages = {module_key(n): copy.deepcopy(self.stages[module_key(n)]) for n in names}
        if head is not None:
            stages[module_key(names[-1])] = head
        own = (n for n in names if n in self.new_stages or (head is not None and n == names[-1]))
        return Tail(stages, map(module_key, own), self.batch_norm_frozen)

    def clone_tails(self, since: str, number: int) -> nn.ModuleList:
        """Return several such copies, for example one for each domain."""
        return nn.ModuleList(self.clone_tail(since) for _ in range(number))

    def cut(self, since: str) -> None:
        """Drop the stages from `since` on; `forward` then gives the activation at that site."""
        if since == self.names[0]:
            raise SettingsError(f"'{since}' is the network's first stage: without it none is left")
        for name in self._between(since, None):
            del self.stages[module_key(name)]
        self.names = self._between(None, since)
        self.head = self.names[-1]
        self.mask_sites = tuple(name for name in self.mask_sites if name in self.names)
        self.new_stages = tuple(name for name in self.new_stages if name in self.names)

    def channel_axis(self, site: str) -> int:
        """Return the axis of the channels in a batch: 1, or the last where there are tokens."""
        return -1 if len(self.input_shapes[self._known(site)]) == 2 else 1

    def width(self, site: str) -> int:
        """Return the number of channels at a site."""
        axis = self.channel_axis(site)
        return self.input_shapes[site][axis if axis < 0 else axis - 1]

    def set_batch_norm_frozen(self, frozen: bool) -> None:
        """Keep batch-norm statistics as they are, also in training; scale and shift still learn."""
        self.batch_norm_frozen = frozen
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.batch_norm_frozen:
            hold_batch_norm(self)
        for name in self.frozen_stages():
            self.stage(name).eval()
        return self

    def without_dropout(self) -> None:
        """Switch off dropout and stochastic depth for good."""
        for module in self.modules():
            if isinstance(module, DROPOUTS):
                module.p = 0.0
            for rate in ("drop_prob", "drop_rate"):  # timm's DropPath, and functional dropout
                if isinstance(getattr(module, rate, None), float):
                    setattr(module, rate, 0.0)

    def compile_stages(self, backend: str = "inductor") -> None:
        """Compile in place, stage by stage, so that parts still run and names stay the same."""
        from torch import _dynamo as dynamo

        # stages of one class share their code, and with it dynamo's count of compiled versions
        dynamo.config.recompile_limit = max(dynamo.config.recompile_limit, 8 * len(self.stages))
        for stage in self.stages.values():
            stage.compile(backend=backend)  # pyright: ignore[reportUnknownMemberType]

    def _lay_out(self, stages: Mapping[str, nn.Module], original: Mapping[str, Tensor]) -> None:
        """Take these stages; `original` are the same tensors by their library's names."""
        self.names = tuple(stages)
        self.stages = nn.ModuleDict({module_key(n): stage for n, stage in stages.items()})
        for stage in stages.values():
            # a first layer in place would overwrite what enters the stage
            first = stage[0] if type(stage) is nn.Sequential and len(stage) else stage
            if getattr(first, "inplace", False):
                setattr(first, "inplace", False)  # noqa: B010
        if len(self.stages) != len(self.names):
            raise SettingsError(f"stage names clash once dots are gone: {', '.join(self.names)}")
        here = {id(tensor): name for name, tensor in self.state_dict(keep_vars=True).items()}
        self.original_names = {name: here[id(tensor)] for name, tensor in original.items()}
        self.input_shapes: dict[str, tuple[int, ...]] = {}
        """At each site, without the batch axis; as seen on two empty images."""
        training, name = self.training, ""
        self.eval()
        try:
            with torch.no_grad():
                x = torch.zeros(2, 3, self.image_size, self.image_size)
                for name in self.names:
                    self.input_shapes[name] = tuple(x.shape[1:])
                    x = self.stages[module_key(name)](x)
        except (RuntimeError, ValueError, AssertionError, IndexError) as error:
            raise SettingsError(
                f"images of {self.image_size} px do not pass stage '{name}' ({error}); "
                "set another network.image_size"
            ) from error
        self.train(training)

    def _known(self, name: str) -> str:
        if name not in self.names:
            raise SettingsError(unknown_name("stage", name, self.names))
        return name

    def _learning(self, name: str) -> None:
        if self._known(name) in self.frozen_stages():
            raise SettingsError(
                f"stage '{name}' lies in the frozen part of the network; choose one from "
                f"'{self.frozen_until}' on, or set another network.freeze_until"
            )

    def frozen_stages(self) -> tuple[str, ...]:
        """Return the names of the stages that never learn."""
        if self.frozen_until is None:
            return ()
        if self.frozen_until not in self.names:
            return self.names
        return self._between(None, self.frozen_until)

    def _between(self, since: str | None, until: str | None) -> tuple[str, ...]:
        first = 0 if since is None else self.names.index(self._known(since))
        last = len(self.names) if until is None else self.names.index(self._known(until))
        if first > last:
            raise SettingsError(
                f"stage '{since}' comes after '{until}' (in order: {', '.join(self.names)})"
            )
        return self.names[first:last]


def module_key(name: str) -> str:
    """Return the name of a stage's module, which cannot hold dots."""
    return name.replace(".", "_")


def stage_distances(method: nn.Module, network: Network) -> dict[nn.Parameter, int]:
    """Count for each parameter the stages with weights between its own and the last one.

    Copies of stages, of which a method may have some, are as far away as the originals. Parameters
    that belong to no stage are left out.
    """
    keys = [module_key(name) for name in network.input_shapes]  # also of stages that were cut off
    weights: dict[str, list[nn.Parameter]] = {key: [] for key in keys}
    for module in method.modules():
        if isinstance(module, Network | Tail):
            stages = module.stages if isinstance(module, Network) else module
            for key, stage in stages.named_children():
                weights[key].extend(stage.parameters())
    found: dict[nn.Parameter, int] = {}
    for distance, key in enumerate(key for key in reversed(keys) if weights[key]):
        found.update(dict.fromkeys(weights[key], distance))
    return found


def linear_classifier(network: Network) -> nn.Linear:
    """Return the one linear layer of the network's last stage."""
    layers = [m for m in network.stage(network.head).modules() if isinstance(m, nn.Linear)]
    if len(layers) != 1:
        raise SettingsError(
            f"head_first=true fits one linear layer, but the last stage of this network, "
            f"'{network.head}', has {len(layers)}; leave it out, or choose another network.name"
        )
    return layers[0]


@torch.no_grad()
def classifier_inputs(network: Network, features: Tensor) -> Tensor:
    """Return what reaches the linear layer, `[images, features]`, of features at the last stage."""
    seen: list[Tensor] = []
    head = network.stage(network.head)
    watched = linear_classifier(network).register_forward_pre_hook(
        lambda _, arguments: seen.append(arguments[0])
    )
    training = head.training
    head.eval()(features)
    head.train(training)
    watched.remove()
    return seen[0].flatten(1)


@torch.no_grad()
def set_classifier(network: Network, weight: Tensor, bias: Tensor) -> None:
    """Give the linear layer these weights; one without a bias does without."""
    layer = linear_classifier(network)
    layer.weight.copy_(weight)
    if layer.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
        layer.bias.copy_(bias)
