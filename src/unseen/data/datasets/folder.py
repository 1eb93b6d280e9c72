"""Your own pictures, as root/domain/class/*; without labels as root/domain/*."""

from dataclasses import replace
from pathlib import Path

from unseen.data.dataset import Index, LabelledImage
from unseen.data.files import (
    OwnImages,
    existing_folder,
    first_few,
    folders_in,
    images_in,
    missing_classes,
)
from unseen.data.images import images_below
from unseen.errors import DataError

LAYOUT = "root/domain/class/*, for example pictures/photo/dog/rex.jpg"


class Folder(OwnImages):
    """Domains are the folders in root, classes the folders in those; files may lie deeper.

    A domain with pictures and no folders in it has no labels.
    """

    def find(self) -> tuple[Index, Path]:
        root = existing_folder(self.root, LAYOUT)
        folders = _class_folders(root)
        sources = {source for names in folders.values() for source in names}
        new_names = self.new_names(sources, root)
        labelled = [
            LabelledImage(file.relative_to(root).as_posix(), new_names[source], domain)
            for domain, names in folders.items()
            for source in names
            if source in new_names
            for file in images_below(root / domain / source)
        ]
        unlabelled = [
            LabelledImage(f"{domain}/{file}", "", domain)
            for domain, names in folders.items()
            if not names
            for file in images_in(root / domain)
        ]
        images = labelled + unlabelled
        empty = sorted(folders.keys() - {image.domain for image in images})
        if empty:
            raise DataError(
                f"domains without images of any class in {root}: {', '.join(empty)}; "
                f"expected {LAYOUT}. Fill or remove these folders"
            )
        index = Index.of(images, self.draw_splits(image.name for image in images))
        remarks = missing_classes(index)
        unused = sorted(set(new_names.values()) - {"", *index.classes})
        if unused:
            remarks.insert(0, f"class folders without images in any domain: {first_few(unused)}")
        strays = [f"{d}/{file}" for d in index.labelled_domains for file in images_in(root / d)]
        if strays:
            remarks.insert(0, f"in no class folder, and not used: {first_few(strays)}")
        return replace(index, remarks=tuple(remarks)), root


def _class_folders(root: Path) -> dict[str, list[str]]:
    """List the class folders of each domain; a root without the domain level is recognised here."""
    folders = {domain: folders_in(root / domain) for domain in folders_in(root)}
    if not folders:
        raise DataError(f"{root} holds no folders; expected {LAYOUT}")
    if not any(folders.values()):
        direct = [domain for domain in folders if images_in(root / domain)]
        problem = f"pictures lie directly in {first_few(direct)}" if direct else "no class folders"
        raise DataError(
            f"{root} has no domain level ({problem}): it looks like root/class/*; expected "
            f"{LAYOUT}. With a single domain, put these folders into one: root/DOMAIN/class/*"
        )
    return folders
