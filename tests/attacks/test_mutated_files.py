"""Damaged runs, saved models and exported files give a clear error or the same answer."""

from pathlib import Path

import pytest
from tests.attacks.mutated_files import Subjects, attack_all, make_subjects


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Subjects:
    pytest.importorskip("onnxruntime")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        return make_subjects(tmp_path_factory.mktemp("subjects"))


FOUND = (102, 103, 158, 285, 293, 356, 574, 802, 860, 997)
"""Each of these ended with a traceback: metrics.jsonl and README.md that are not UTF-8, names in an
ONNX file, nested JSON, zlib, digests and data.json of another shape, seconds and commands."""


def test_a_few_mutated_files_and_those_that_went_wrong_before(
    subjects: Subjects, tmp_path: Path
) -> None:
    assert attack_all(subjects, (*range(40), *FOUND), tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_mutated_files(subjects: Subjects, tmp_path: Path) -> None:
    assert attack_all(subjects, range(2000), tmp_path) == []
