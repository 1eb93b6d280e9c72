"""PACS (Li et al. 2017) and DomainNet (Peng et al. 2019), whose official lists say which images
train, lines of `domain/class/file label`."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from unseen.data.dataset import FileDataset
from unseen.data.images import existing_folder, images_in
from unseen.data.index import Index, LabelledImage, Split
from unseen.data.tables import read_text
from unseen.errors import DataError, first_few, nearest

Labels = dict[LabelledImage, int]


def read_list(file: Path, domain: str) -> list[tuple[LabelledImage, int]]:
    """Read a list, images and labels in order; all malformed lines are reported at once."""
    lines = read_text(file, "an official list").splitlines()
    listed: list[tuple[LabelledImage, int]] = []
    malformed: list[str] = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        name, _, label = line.rpartition(" ")
        parts = name.split("/")
        if len(parts) == 3 and label.isdigit():
            listed.append((LabelledImage(name, parts[1], parts[0]), int(label)))
        elif line:
            malformed.append(f"line {number}: '{line}'")
    if malformed:
        raise DataError(
            f"{file} has lines that are not 'domain/class/file label': {first_few(malformed)}"
        )
    foreign = [image.name for image, _ in listed if image.domain != domain]
    if foreign:
        raise DataError(f"{file.name} names images of another domain: {first_few(foreign)}")
    return listed


def listed_domains(lists: Path, ending: str) -> list[str]:
    """Name the domains that have a list with this ending."""
    return sorted(file.name.removesuffix(ending) for file in lists.glob(f"*{ending}"))


def check_files(images: Iterable[LabelledImage], folder: Path, domains: Iterable[str]) -> list[str]:
    """Raise DataError when lists name missing files; return a remark on files in no list."""
    listed = {image.name for image in images}
    on_disk = {
        f"{domain}/{class_folder.name}/{name}"
        for domain in domains
        if (folder / domain).is_dir()
        for class_folder in os.scandir(folder / domain)
        if class_folder.is_dir()
        for name in images_in(Path(class_folder.path))
    }
    missing, spare = sorted(listed - on_disk), sorted(on_disk - listed)
    if missing:
        raise DataError(
            f"the lists name {len(missing):,} of {len(listed):,} files that are not in {folder}: "
            f"{first_few(missing)}; download the dataset again, or set data.root to all of it"
        )
    return [f"in no list, and not used: {first_few(spare)}"] if spare else []


def oddity(what: str, images: Iterable[LabelledImage]) -> list[str]:
    """Return a remark on images that lists treat oddly, if there are any."""
    names = sorted(image.name for image in images)
    return [f"{what}: {first_few(names)}"] if names else []


class PACS(FileDataset):
    """train trains, crossval validates; the test list is the whole domain, for when it is unseen.

    The official art_painting crossval list labels one dog 0 and names another one twice, in place
    of a third. So the class is the folder's name, and what only test names joins crossval.
    """

    classes = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    layout = (
        "the PACS folder: the lists '<domain>_{train,crossval,test}_kfold.txt' in it or below it, "
        "and the images as <domain>/<class>/* in it, in images/ or in kfold/"
    )

    def find(self) -> tuple[Index, Path]:
        root = existing_folder(self.root, self.layout)
        ending = "_train_kfold.txt"
        found = (sorted(root.glob(f"{above}*{ending}")) for above in ("", "*/", "*/*/"))
        lists = next((files[0].parent for files in found if files), None)
        if lists is None:
            raise DataError(f"no '*{ending}' in {root} or two levels below; expected {self.layout}")
        domains = listed_domains(lists, ending)
        places = (root / "images", root / "kfold", root)
        folder = next((p for p in places if any((p / d).is_dir() for d in domains)), None)
        if folder is None:
            raise DataError(
                f"no folder '{domains[0]}' with images in {root}; expected {self.layout}"
            )
        images: list[LabelledImage] = []
        remarks: list[str] = []
        for domain in domains:
            images += self._official_splits(lists, domain, remarks)
        remarks += check_files(images, folder, domains)
        return self.index_of(images, self.classes, remarks=remarks), folder

    def _official_splits(self, lists: Path, domain: str, remarks: list[str]) -> list[LabelledImage]:
        """Return one domain's images with their split, in the order of the lists."""
        train, crossval, test = (
            self._checked(lists / f"{domain}_{part}_kfold.txt", domain, remarks)
            for part in ("train", "crossval", "test")
        )
        listed = train.keys() | crossval.keys()
        spare = [image for image in test if image not in listed]
        for what, images in (
            ("in train and crossval, used for crossval", train.keys() & crossval.keys()),
            ("in train or crossval but not in test", listed - test.keys()),
            ("in test only, used for crossval", spare),
        ):
            remarks += oddity(f"{domain}: {what}", images)
        validated = dict.fromkeys([*crossval, *spare], Split.VALIDATION)
        splits = dict.fromkeys(train, Split.TRAIN) | validated
        return [image._replace(split=split) for image, split in splits.items()]

    def _checked(self, file: Path, domain: str, remarks: list[str]) -> Labels:
        """Return a list without repetitions, after a look at its classes and labels."""
        listed = read_list(file, domain)
        for image, label in listed:
            if image.class_name not in self.classes:
                hint = nearest(image.class_name, self.classes)
                raise DataError(
                    f"{file.name} names the class '{image.class_name}'{hint}: {image.name}"
                )
            if label != self.classes.index(image.class_name) + 1:
                remarks.append(
                    f"{file.name}: label {label} for {image.name}; the folder's name is used"
                )
        counts = Counter(image for image, _ in listed)
        repeated = [image for image, times in counts.items() if times > 1]
        if repeated:
            names = first_few([image.name for image in repeated])
            remarks.append(f"{file.name}: named more than once: {names}")
        return dict(listed)


class DomainNet(FileDataset):
    """Official train and test lists; `validation_share` is taken from train by name."""

    layout = "a folder with <domain>/<class>/* and the lists '<domain>_{train,test}.txt'"

    def find(self) -> tuple[Index, Path]:
        root = existing_folder(self.root, self.layout)
        domains = listed_domains(root, "_train.txt")
        if not domains:
            raise DataError(f"no '*_train.txt' in {root}; expected {self.layout}")
        train: Labels = {}
        test: Labels = {}
        for domain in domains:
            train.update(read_list(root / f"{domain}_train.txt", domain))
            test.update(read_list(root / f"{domain}_test.txt", domain))
        remarks = oddity("in train and test, used for test", train.keys() & test.keys())
        labels = train | test
        remarks += check_files(labels, root, domains)
        classes = _in_order_of_labels(labels, remarks)
        images = [image._replace(split=Split.TEST) if image in test else image for image in labels]
        return self.index_of(images, classes, remarks=remarks), root


def _in_order_of_labels(labels: Mapping[LabelledImage, int], remarks: list[str]) -> list[str]:
    """Return folder names in the order of their labels; remark on those with more than one."""
    label_of: dict[str, int] = {}
    unequal: set[str] = set()
    for image, label in labels.items():
        if label_of.setdefault(image.class_name, label) != label:
            unequal.add(image.class_name)
    if unequal:
        remarks.append(
            f"several labels for one class; the folder's name is used: {first_few(sorted(unequal))}"
        )
    return sorted(label_of, key=lambda name: (label_of[name], name))
