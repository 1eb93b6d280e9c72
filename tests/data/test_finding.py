"""Image files by folder, pattern and name."""

from pathlib import Path

import pytest

from unseen.data.images import find_images
from unseen.errors import DataError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "m.png",
        "a.JPG",
        "z/b.png",
        "z/a.png",
        "k/c.webp",
        ".x/d.png",
        "z/.e.png",
        "n.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["."], "a.JPG m.png k/c.webp z/a.png z/b.png"),
        (["z", "k"], "z/a.png z/b.png k/c.webp"),
        (["*.png"], "m.png"),
        (["**/*.png"], "m.png z/a.png z/b.png"),
        (["*"], "a.JPG k/c.webp m.png z/a.png z/b.png"),
        (["?.png", "[yz]/*"], "m.png z/a.png z/b.png"),
        (["n.txt", "z/.e.png"], "n.txt z/.e.png"),  # named on purpose
        ([".x/*"], ".x/d.png"),
    ],
)
def test_in_order_of_name(folder: Path, words: list[str], expected: str) -> None:
    assert [path.as_posix() for path in find_images(words)] == expected.split()


def test_from_anywhere(folder: Path) -> None:
    assert list(find_images([f"{folder}/*.png"])) == [folder / "m.png"]
    assert [p.name for p in find_images([f"{folder}/../{folder.name}/z/a*"])] == ["a.png"]


def test_names_with_signs_of_a_pattern(folder: Path) -> None:
    (folder / "[1].png").touch()
    assert list(find_images(["[1].png"])) == [Path("[1].png")]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("nothing", "there is no file or folder nothing"),
        ("*.gif", r"no file or folder \*\.gif, and nothing matches it as a pattern"),
        ("*.txt", r"\*\.txt holds no images; expected files that end in \.jpg"),
    ],
)
def test_what_is_not_there(folder: Path, word: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(find_images(["m.png", word]))
