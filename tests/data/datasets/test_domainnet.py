from pathlib import Path

import numpy as np
import pytest
from tests.work import counted

from unseen.data.datasets.published import DomainNet
from unseen.data.index import Split
from unseen.data.roles import choose_roles
from unseen.errors import DataError


def domainnet(root: Path, **values: object) -> DomainNet:
    return DomainNet(DomainNet.Config.model_validate({"name": "domainnet", **values}), root)


def write(root: Path, domain: str, train: list[str], test: list[str]) -> None:
    for part, lines in (("train", train), ("test", test)):
        (root / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
        for line in lines:
            file = root / line.rpartition(" ")[0]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for domain in ("clipart", "real"):
        train = [f"{domain}/zebra/{n}.jpg 0" for n in range(40)] + [f"{domain}/ant/0.jpg 1"]
        write(tmp_path, domain, train, [f"{domain}/zebra/t.jpg 0", f"{domain}/ant/t.jpg 1"])
    return tmp_path


def test_lists_decide_and_validation_is_taken_from_train(root: Path) -> None:
    index = domainnet(root, validation_share=0.3).index()
    assert index.classes == ("zebra", "ant")  # the order of the labels
    assert index.domains == ("clipart", "real")
    assert index.official_test
    tested = {name for name, split in zip(index.names, index.splits, strict=True) if split == 2}
    assert tested == {f"{d}/{c}/t.jpg" for d in ("clipart", "real") for c in ("zebra", "ant")}
    assert 10 < np.sum(index.splits == Split.VALIDATION) < 40
    settings = DomainNet.Config.model_validate({"name": "domainnet", "unseen_domain": "real"})
    out = choose_roles(index, settings).out_of_domain["real"]
    assert {index.names[row] for row in out} == {"real/zebra/t.jpg", "real/ant/t.jpg"}


def test_oddities_are_remarked(root: Path) -> None:
    with (root / "real_test.txt").open("a") as stream:
        stream.write("real/zebra/0.jpg 1\n")
    (root / "real/ant/spare.png").touch()
    index = domainnet(root).index()
    assert index.splits[index.names.index("real/zebra/0.jpg")] == Split.TEST
    text = "\n".join(index.remarks)
    assert "in train and test, used for test: real/zebra/0.jpg" in text
    assert "several labels for one class; the folder's name is used: zebra" in text
    assert "in no list, and not used: real/ant/spare.png" in text


def test_mistakes(root: Path, tmp_path: Path) -> None:
    (root / "real/zebra/3.jpg").unlink()
    with pytest.raises(DataError, match=r"name 1 of 86 files .*real/zebra/3\.jpg"):
        domainnet(root).index()
    (root / "real_test.txt").unlink()
    with pytest.raises(DataError, match=r"real_test\.txt cannot be read .*an official list"):
        domainnet(root).index()
    with pytest.raises(DataError, match=r"no '\*_train.txt' in"):
        domainnet(root / "real").index()


def test_indexing_is_fast(tmp_path: Path) -> None:
    """20,000 lines; with all 586,575 it takes seconds."""
    lines = [f"quick/class {n % 50}/{n}.jpg {n % 50}" for n in range(20_000)]
    write(tmp_path, "quick", lines, lines[:1])
    with counted() as work:
        assert len(domainnet(tmp_path).index()) == 20_000
    assert work.calls < 40 * 20_000
