"""Settings of a run on the digits that takes a second, whatever the recipes say."""

TINY = {
    "data.unseen_domain": "outlines",
    "network.image_size": 16,
    "images_per_domain": 2,
    "optimizer.lr": 1e-3,
    "schedule.name": "constant",
    "steps": 6,
    "evaluate_every": 3,
    "checkpoint_every": 2,
    "log_every": 1,
    "devices.accelerator": "cpu",
}
