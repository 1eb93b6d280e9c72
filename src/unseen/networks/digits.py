"""Small networks for pictures of digits, without pretrained weights."""

from torch import nn

from unseen.networks import pretrained
from unseen.networks.stages import ImageInput, Network
from unseen.settings.experiment import NetworkSettings


def small_cnn(settings: NetworkSettings, n_classes: int) -> Network:
    """Build three convolutions and two linear layers, about 59,000 weights, for digits.

    The first convolution looks at every second pixel, and pooling comes before the group norm:
    that makes a training step four to five times cheaper than at full resolution.
    """
    if settings.pretrained is True:
        raise pretrained.no_weights("small_cnn")
    stages = {
        "conv1": _group_normed(nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.MaxPool2d(2)),
        "conv2": _group_normed(nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2)),
        "conv3": _group_normed(nn.Conv2d(32, 64, 3, padding=1)),
        "pool": nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        "fc1": nn.Sequential(nn.Linear(256, 128), nn.ReLU()),
        "fc2": nn.Linear(128, n_classes),
    }
    expects = ImageInput(settings.image_size or 32, (0.5,) * 3, (0.5,) * 3)
    return Network(stages, expects, mask_sites=("fc1", "fc2"))


def mnist_cnn(settings: NetworkSettings, n_classes: int) -> Network:
    """Build two convolutions and two linear layers with batch norm, about 460,000 weights at 28 px.

    Each image first loses its own brightness and contrast (as in Shu et al., ICLR 2018), which are
    most of what tells a digit on black from one on a photograph.
    """
    if settings.pretrained is True:
        raise pretrained.no_weights("mnist_cnn")
    size = settings.image_size or 28
    stages = {
        "normalise": nn.InstanceNorm2d(3),
        "conv1": _convolution(3, 32),
        "conv2": nn.Sequential(_convolution(32, 64), nn.Dropout2d()),
        "flatten": nn.Flatten(),
        "fc1": nn.Sequential(
            nn.Linear(64 * (size // 4) ** 2, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout()
        ),
        "fc2": nn.Linear(128, n_classes),
    }
    expects = ImageInput(size, (0.5,) * 3, (0.5,) * 3)
    return Network(stages, expects, mask_sites=("fc1", "fc2"))


def _group_normed(convolution: nn.Conv2d, *pooling: nn.Module) -> nn.Sequential:
    """Return layers with group norm: unlike batch norm, domains share no statistics."""
    norm = nn.GroupNorm(8, convolution.out_channels)
    return nn.Sequential(convolution, *pooling, norm, nn.ReLU())


def _convolution(n_in: int, n_out: int) -> nn.Sequential:
    """Return layers that halve the picture; batch norm makes domains share their statistics."""
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 5, padding=2), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)
    )
