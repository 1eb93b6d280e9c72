"""Layers that networks and methods are made of, and batch norm whose statistics stay."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function


class Embed(nn.Module):
    """A timm ViT before its first block: patches, class and register tokens, positions."""

    def __init__(self, vit: Any) -> None:
        super().__init__()
        self.patch_embed = vit.patch_embed
        self.cls_token = vit.cls_token
        self.reg_token = vit.reg_token
        self.pos_embed = vit.pos_embed
        self.positions_of_prefix = not vit.no_embed_class
        self.drop = nn.Sequential(vit.pos_drop, vit.patch_drop)
        self.norm_pre = vit.norm_pre

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch_embed(images)
        tokens = (self.cls_token, self.reg_token)
        prefix = [token.expand(x.shape[0], -1, -1) for token in tokens if token is not None]
        if self.pos_embed is None:
            x = torch.cat([*prefix, x], dim=1)
        elif self.positions_of_prefix:
            x = torch.cat([*prefix, x], dim=1) + self.pos_embed
        else:
            x = torch.cat([*prefix, x + self.pos_embed], dim=1)
        return self.norm_pre(self.drop(x))


class NormPool(nn.Module):
    """A timm ViT between its last block and its classifier."""

    def __init__(self, vit: Any) -> None:
        super().__init__()
        self.norm = vit.norm
        self.attn_pool = vit.attn_pool
        self.fc_norm = vit.fc_norm
        self.head_drop = vit.head_drop
        self.pooling: str = vit.global_pool
        self.n_prefix: int = vit.num_prefix_tokens
        self.with_prefix: bool = vit.pool_include_prefix

    def forward(self, tokens: Tensor) -> Tensor:
        from timm.models.vision_transformer import global_pool_nlc

        x = self.norm(tokens)
        if self.attn_pool is not None:
            x = self.attn_pool(x if self.with_prefix else x[:, self.n_prefix :])
        else:
            x = global_pool_nlc(x, self.pooling, self.n_prefix, self.with_prefix)
        return self.head_drop(self.fc_norm(x))


class MeanPool(nn.Module):
    """Mean over the pixels, `[images, channels]`. The gradient of the usual one is not laid out as
    images are, channels last, and slows down everything that it then passes through."""

    @classmethod
    def in_place_of(cls, pool: Any) -> nn.Module:
        """Return the pooling of a timm network, or this one where it is the mean."""
        return cls() if pool.pool_type == "avg" else pool

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return x.mean((2, 3))
        return x.permute(0, 2, 3, 1).flatten(1, 2).mean(1)


def convolution(n_in: int, n_out: int) -> nn.Sequential:
    """Return layers that halve the picture; with group norm, domains share no statistics."""
    convolution = nn.Conv2d(n_in, n_out, 3, padding=1)
    return nn.Sequential(convolution, nn.GroupNorm(8, n_out), nn.ReLU(), nn.MaxPool2d(2))


def perceptron(n_in: int, n_out: int, hidden: int, depth: int, dropout: float) -> nn.Sequential:
    """Return `depth` hidden layers of the same width; without any, one linear layer."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(n_in, hidden), nn.ReLU(), nn.Dropout(dropout)]
        n_in = hidden
    return nn.Sequential(*layers, nn.Linear(n_in, n_out))


def reverse_gradient(x: Tensor, strength: float) -> Tensor:
    """Pass numbers on; their gradient comes back times -strength (Ganin & Lempitsky 2015)."""
    return _Reversal.apply(x, strength)  # pyright: ignore[reportReturnType]


def reversal_strength(ratio: float, steepness: float) -> float:
    """Return 2 / (1 + exp(-steepness p)) - 1: it grows from 0 towards 1 as p goes from 0 to 1."""
    return 2 / (1 + math.exp(-steepness * ratio)) - 1


class _Reversal(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def hold_batch_norm(network: nn.Module) -> None:
    """Normalise by the recorded statistics until `train` is called again."""
    for module in network.modules():
        if isinstance(module, BATCH_NORMS):
            module.eval()


@contextmanager
def statistics_kept(*modules: nn.Module) -> Generator[None]:
    """Let batch norm in training mode normalise by the batch and record nothing; frozen batch norm
    goes on as it is. So each network's statistics are those of its own images."""
    layers = (layer for module in modules for layer in module.modules())
    recording = [m for m in layers if isinstance(m, BATCH_NORMS) and m.track_running_stats]
    for layer in recording:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in recording:
            layer.track_running_stats = True
