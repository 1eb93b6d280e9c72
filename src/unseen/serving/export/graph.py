"""What an exported file computes: pixels of any size in, probabilities out."""

import copy

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from unseen.config import identity
from unseen.data.augmentation.pixel_scale import PixelScale, to_input
from unseen.errors import UnseenError
from unseen.methods.base import Method
from unseen.methods.kinds import DomainAware
from unseen.records.format import FORMAT
from unseen.serving.export.metadata import UNKNOWN, Metadata
from unseen.serving.export.resize import to_squares
from unseen.serving.model import Model


def describe(model: Model) -> Metadata:
    experiment = model.experiment
    return Metadata(
        format=FORMAT,
        classes=model.classes,
        domains=model.domains,
        image_size=model.image_size,
        opinions=model.has_opinions,
        method=experiment.method.name,
        backbone=experiment.network.name,
        dataset=experiment.data.name,
        selection=experiment.selection,
        run=identity(experiment),
        profile="" if model.profile is None else model.profile.to_text(),
        temperature=model.fitted_temperature,
    )


class Plain(nn.Module):
    """`images` uint8 [n, height, width, 3] to calibrated `probabilities` [n, classes]."""

    def __init__(self, method: Method, temperature: float) -> None:
        super().__init__()
        self.method = method
        self.temperature = temperature
        network = method.network
        self.size = network.image_size
        self.scale = PixelScale(network.mean, network.std)

    def inputs(self, images: Tensor) -> Tensor:
        return to_input(to_squares(images, self.size), self.scale)

    def forward(self, images: Tensor) -> Tensor:
        return (self.method.predict(self.inputs(images)) / self.temperature).softmax(dim=1)


class WithDomains(Plain):
    """Also takes `domain`, the number of the training domain or -1, and gives `opinions`
    [n, domains, classes]."""

    method: DomainAware

    def forward(self, images: Tensor, domain: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        scores, opinions = self.method.scores_and_opinions(self.inputs(images))
        known = opinions.index_select(0, domain.clamp(min=0).reshape(1)).squeeze(0)
        chosen = torch.where(domain < 0, scores, known)
        by_image = opinions.transpose(0, 1) / self.temperature
        return (chosen / self.temperature).softmax(dim=1), by_image.softmax(dim=2)


def trace(method: Method, temperature: float) -> ExportedProgram:
    """The method as one graph, for any number of images of any size."""
    sizes = {axis: Dim(name) for axis, name in enumerate(("images", "height", "width"))}
    plain = copy.deepcopy(method).cpu().to(memory_format=torch.contiguous_format)
    kind = WithDomains if isinstance(plain, DomainAware) else Plain
    graph = kind(plain, temperature)
    n_inputs = 2 if isinstance(plain, DomainAware) else 1
    images = torch.zeros(2, 37, 41, 3, dtype=torch.uint8)
    inputs = (images, torch.tensor(UNKNOWN))[:n_inputs]
    shapes = (sizes, {})[:n_inputs]
    try:
        with torch.no_grad():
            program = torch.export.export(graph.eval(), inputs, dynamic_shapes=shapes)
    except Exception as error:  # the tracer raises nearly anything
        reason = str(error).strip().partition("\n")[0]
        raise UnseenError(
            f"{type(method).__name__} cannot be exported: torch.export says '{reason}'. "
            "A network or method of your own has to be traceable: no Python branches on values, "
            "images.shape[0] in place of len(images)"
        ) from error
    for node in program.graph.nodes:  # source lines and paths of this machine
        node.meta = {"val": node.meta["val"]} if "val" in node.meta else {}
    return program
