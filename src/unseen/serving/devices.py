"""Where a model in use computes."""

import torch

from unseen.errors import SettingsError


def choose_device(name: str) -> torch.device:
    """`auto`: a GPU where there is one, else the CPU; otherwise as torch names devices."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise SettingsError(
            f"the device '{name}' cannot be used ({reason}); choose auto, cpu or one that this "
            "machine has"
        ) from error
    return device
