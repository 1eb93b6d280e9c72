"""Settings of a run on the digits that takes a second."""

TINY = {
    "data.unseen_domain": "outlines",
    "network.image_size": 16,
    "images_per_domain": 2,
    "steps": 6,
    "evaluate_every": 3,
    "checkpoint_every": 2,
    "log_every": 1,
    "devices.accelerator": "cpu",
}
