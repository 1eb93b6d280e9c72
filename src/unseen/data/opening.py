"""From settings to a dataset: where its files lie, and opening each dataset only once."""

import os
from pathlib import Path

from unseen import catalog
from unseen.atomic import write_json
from unseen.config import DataSettings
from unseen.data.cache import cache_folder, read_if_whole
from unseen.data.dataset import Dataset
from unseen.errors import DataError


def open_dataset(settings: DataSettings) -> Dataset:
    """The dataset of these settings, at the root they name or at the one that is known."""
    kind: type[Dataset] = catalog.load("dataset", settings.name)
    if not isinstance(settings, kind.Config):
        settings = kind.Config(**settings.model_dump())
    return kind(settings, _root(kind, settings) if kind.needs_root else None)


_MAKES_NO_DIFFERENCE = {"unseen_domain", "training_domains", "share", "train_on_unseen"}


class OpenDatasets:
    """Datasets by their settings, each opened once, so that each is indexed once.

    Which domains and what share of them train, and which are unseen, makes no difference to a
    dataset: all runs of a comparison share one.
    """

    def __init__(self) -> None:
        self._opened: dict[str, Dataset] = {}

    def open(self, settings: DataSettings) -> Dataset:
        key = settings.model_dump_json(exclude=_MAKES_NO_DIFFERENCE)
        if key not in self._opened:
            self._opened[key] = open_dataset(settings)
        return self._opened[key]


def remember_root(name: str, root: Path) -> None:
    """Later runs find the dataset there without being told."""
    file = cache_folder() / "roots.json"
    path = root.expanduser()
    place = str(path.resolve() if path.exists() else root)
    write_json(file, read_if_whole(file) | {name: place})


def _root(kind: type[Dataset], settings: DataSettings) -> Path:
    if settings.root is not None:
        return Path(settings.root).expanduser()
    remembered = read_if_whole(cache_folder() / "roots.json").get(settings.name)
    if remembered and (kind.name_as_root or Path(remembered).exists()):
        return Path(remembered)
    shared = os.environ.get("UNSEEN_DATA")
    if shared and kind.folder_name and (Path(shared) / kind.folder_name).is_dir():
        return Path(shared) / kind.folder_name
    gone = f" (it was in {remembered}, which no longer exists)" if remembered else ""
    raise DataError(
        f"where is the dataset '{settings.name}'?{gone} Run `unseen prepare {settings.name} "
        f"--root DIR` once, or set data.root=DIR"
    )
