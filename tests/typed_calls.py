"""Calls that a type checker accepts or refuses: `make check` reads this file, nobody runs it."""
# pyright: reportUnnecessaryTypeIgnoreComment=error

import unseen
from unseen.results.folder import RunFolder

settings = {"data.unseen_domain": "outlines", "steps": 3}


def right(folder: RunFolder) -> unseen.Predictor:
    unseen.fit("digits/dmg", steps=3, data={"unseen_domain": "plain"}, optimizer={"lr": 1e-3})
    unseen.fit("digits/dmg", **settings)
    unseen.compare("digits", seeds=[0, 1], selection="last", log="wandb").plot().save("bars.svg")
    unseen.sweep("digits", draws=2, settings={"steps": 3})
    unseen.auto("scans", minutes=5, seed=1)
    unseen.load_run(folder)
    return unseen.load(folder)


def wrong() -> None:
    unseen.fit("digits/dmg", stpes=3)  # pyright: ignore[reportCallIssue]
    unseen.fit("digits/dmg", steps="3")  # pyright: ignore[reportArgumentType]
    unseen.fit("digits/dmg", optimizer=3)  # pyright: ignore[reportArgumentType]
    unseen.compare("digits", selection="best")  # pyright: ignore[reportArgumentType]
    unseen.sweep("digits", draw=2)  # pyright: ignore[reportCallIssue]
    unseen.auto("scans", minuets=5)  # pyright: ignore[reportCallIssue]
