"""Nothing is stored unless a folder is named; then within bounds."""

import json
from pathlib import Path

import pytest
from benchmarks.service.clients import multipart
from tests.serve.service.asking import ask, picture

from unseen.errors import UnseenError
from unseen.serve.limits import Limits
from unseen.serve.requests import SentImage
from unseen.serve.service import Keeper

HOSTILE = "../../../outside.png"


def images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix != ".json")


@pytest.mark.parametrize("asked_to_keep", [True, False])
def test_images_and_answers_are_kept_where_that_is_asked_for(
    served, tmp_path, monkeypatch, asked_to_keep
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "kept" / "here"
    files = [(HOSTILE, picture(7)), ("text.png", b"no image"), ("b", picture(9, kind="JPEG"))]

    async def work(guard, _):
        return await ask(guard, "/predict", multipart(*files)), await ask(guard, "/model")

    keeper = Keeper(folder, Limits(keep_images=10, keep_bytes=10**6)) if asked_to_keep else None
    reply, model = served(work, keeper=keeper)
    assert reply.status == 200
    assert model.content["keeps_images"] == asked_to_keep
    if not asked_to_keep:
        assert list(tmp_path.iterdir()) == []
        return
    first, second = images_in(folder)
    assert (first.suffix, second.suffix) == (".png", ".jpg")
    assert first.read_bytes() == picture(7)
    assert json.loads(first.with_suffix(".json").read_text()) == reply.content["images"][0]
    assert {path.parent for path in tmp_path.rglob("*.png")} == {folder}


def test_the_newest_stay_also_after_a_new_start(tmp_path) -> None:
    (tmp_path / "not ours.png").write_bytes(b"x" * 1000)
    keeper = Keeper(tmp_path, Limits(keep_images=3, keep_bytes=10**6))
    for number in range(5):
        keeper.keep([SentImage("a", b"image %d" % number, "PNG")], [{"number": number}])
    kept = images_in(tmp_path)
    assert [path.read_bytes() for path in kept[:3]] == [b"image 2", b"image 3", b"image 4"]
    again = Keeper(tmp_path, Limits(keep_images=2, keep_bytes=10**6))
    assert len(images_in(tmp_path)) == 3
    again.keep([SentImage("a", b"x" * 100, "PNG")], [{}])
    Keeper(tmp_path, Limits(keep_images=9, keep_bytes=105))
    assert [path.read_bytes() for path in images_in(tmp_path)] == [b"x" * 100, b"x" * 1000]


def test_what_a_killed_service_left_half_written_is_removed(tmp_path) -> None:
    ours = tmp_path / ".20260102T030405678901Z-000001.png.x3k_9.partial"
    other = tmp_path / ".thesis.docx.partial"
    for file in (ours, other):
        file.write_bytes(b"half")
    Keeper(tmp_path, Limits(keep_images=9, keep_bytes=100))
    assert list(tmp_path.iterdir()) == [other]
    with pytest.raises(UnseenError, match="cannot be kept in"):
        Keeper(other, Limits(keep_images=3, keep_bytes=100))
