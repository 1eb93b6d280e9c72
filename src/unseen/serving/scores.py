"""What a method says of images, whether it is run as it is or exported to a file."""

from torch import Tensor

from unseen.methods.base import Method


def scores_and_opinions(method: Method, images: Tensor) -> tuple[Tensor, Tensor]:
    """Scores where the domain is unknown, and `[domains, images, classes]` as if each training
    domain were the known one; the trunk runs once where the first is the mean of the second."""
    opinions = method.opinions(images)
    scores = opinions.mean(dim=0) if method.averages_opinions else method.predict(images)
    return scores, opinions
