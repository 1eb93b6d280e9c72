"""Files that are damaged, or made to do harm: none of them is run, all of them are named."""

import io
import json
import os
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import unseen
from unseen.errors import UnseenError
from unseen.serving.export.write import Exported
from unseen.serving.model import Model


class Harm:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "harm was done"


@pytest.fixture
def harm(mark: Path) -> bytes:
    """A pickle that does it, as plain pickle and as torch has it."""
    content = pickle.dumps(Harm(mark))
    pickle.loads(content)
    assert mark.is_dir()
    mark.rmdir()
    return content


@pytest.fixture
def saved(dmg: Model, tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    dmg.save_pretrained(folder)
    return folder


def assert_refused(path: Path, message: str, mark: Path | None = None) -> None:
    with pytest.raises(UnseenError, match=message):
        unseen.load(path)
    assert mark is None or not mark.exists()


@pytest.mark.parametrize("section", ["method", "data", "network"])
def test_code_that_settings_name_is_not_imported(
    saved: Path, mark: Path, section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module beside the model would run as soon as it is imported."""
    (tmp_path / "evil.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    config = json.loads((saved / "config.json").read_text())
    config["settings"][section]["name"] = "evil:Thing"
    (saved / "config.json").write_text(json.dumps(config))
    assert_refused(saved, rf"asks to import code: {section}\.name is 'evil:Thing'", mark)
    if section != "network":
        with pytest.raises(UnseenError):
            Model.from_pretrained(str(saved), trust_imports=True)
        assert mark.exists(), "the module really does harm when it is trusted"


def test_a_pickle_in_place_of_weights(saved: Path, harm: bytes, mark: Path) -> None:
    (saved / "model.safetensors").write_bytes(harm)
    assert_refused(saved, r"model\.safetensors is damaged or not a safetensors file", mark)


def test_a_pickle_in_a_run(run: unseen.Run, tmp_path: Path, harm: bytes, mark: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run.folder.path, copied)
    weights = copied / "weights" / "source.safetensors"
    weights.write_bytes(harm)
    assert_refused(copied, r"source\.safetensors is damaged or not a safetensors file", mark)
    weights.unlink()
    assert_refused(copied, r"there is no .*source\.safetensors")


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_a_pickle_with_a_models_name(suffix: str, harm: bytes, mark: Path, tmp_path: Path) -> None:
    kind = "ONNX file" if suffix == ".onnx" else "file of 'unseen export"
    file = tmp_path / f"model{suffix}"
    file.write_bytes(harm)
    assert_refused(file, f"is damaged or not an? {kind}", mark)
    torch.save({"weights": Harm(mark)}, file)
    assert_refused(file, f"is damaged or not an? {kind}", mark)


def test_files_that_were_cut_off(
    saved: Path, onnx_file: Exported, torch_file: Exported, tmp_path: Path
) -> None:
    weights = saved / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert_refused(saved, r"is damaged or not a safetensors file[\s\S]*Put the file .* back")
    for exported in (onnx_file, torch_file):
        file = tmp_path / exported.path.name
        content = exported.path.read_bytes()
        for length in (0, 100, len(content) // 2, len(content) - 50):
            file.write_bytes(content[:length])
            assert_refused(file, "is damaged or not an? .*make it again: unseen export RUN --to")


def rewritten(source: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The same archive, with other members."""
    with zipfile.ZipFile(source) as archive:
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"model/{name}", content)
    return target


def edit(name: str, change: Callable[[dict], None]) -> Callable[[dict[str, bytes]], None]:
    def apply(members: dict[str, bytes]) -> None:
        content = json.loads(members[name])
        change(content)
        members[name] = json.dumps(content).encode()

    return apply


def pickled_weight(harm: Harm) -> Callable[[dict[str, bytes]], None]:
    def apply(members: dict[str, bytes]) -> None:
        table = "data/weights/model_weights_config.json"
        content = json.loads(members[table])
        first = next(iter(content["config"].values()))
        first["use_pickle"] = True
        members[table] = json.dumps(content).encode()
        members[f"data/weights/{first['path_name']}"] = with_torch(harm)

    return apply


def with_torch(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def opaque_constant(harm: Harm) -> Callable[[dict[str, bytes]], None]:
    def apply(members: dict[str, bytes]) -> None:
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}
        table = {"config": {"thing": entry | {"tensor_meta": None}}}
        members["data/constants/model_constants_config.json"] = json.dumps(table).encode()
        members["data/constants/opaque_obj_0"] = pickle.dumps(harm)

    return apply


def sample_inputs(harm: Harm) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({"data/sample_inputs/model.pt": with_torch(harm)})


def old_weights(harm: Harm) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({"data/weights/model.pt": with_torch(harm)})


HOSTILE = {
    "a pickle as the tensor": pickled_weight,
    "the member data/constants/opaque_obj_0": opaque_constant,
    "a pickle as sample inputs": sample_inputs,
    "the member data/weights/model.pt": old_weights,
}


@pytest.mark.parametrize("found", HOSTILE)
@pytest.mark.filterwarnings("ignore")
def test_pickles_in_an_archive(
    found: str, torch_file: Exported, tmp_path: Path, mark: Path
) -> None:
    """Each of them does its harm when torch opens the file; unseen does not let it."""
    file = rewritten(torch_file.path, tmp_path / "model.pt2", HOSTILE[found](Harm(mark)))
    assert_refused(file, f"opening it might run code: {found}", mark)
    with pytest.raises(Exception):  # noqa: B017, PT011
        torch.export.load(file)
    assert mark.exists()


def graph(change: Callable[[dict], None]) -> Callable[[dict[str, bytes]], None]:
    return edit("models/model.json", change)


def operator(content: dict) -> None:
    content["graph_module"]["graph"]["nodes"][5]["target"] = "torch.os.mkdir"


def expression(content: dict) -> None:
    values = content["graph_module"]["graph"]["sym_int_values"]
    next(iter(values.values()))["as_expr"]["expr_str"] = "__import__('os').mkdir('harm')"


def guards(content: dict) -> None:
    content["guards_code"] = ["__import__('os').mkdir('harm')"]


def name_of_a_node(content: dict) -> None:
    content["graph_module"]["graph"]["nodes"][5]["name"] = "x; import os"


def custom_object(content: dict) -> None:
    content["graph_module"]["graph"]["nodes"][5]["inputs"][0]["arg"] = {"as_custom_obj": {}}


def metadata(content: dict) -> None:
    content["graph_module"]["graph"]["nodes"][5]["metadata"] = {"from_node": "[]"}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (operator, r"target 'torch\.os\.mkdir'"),
        (expression, r"expr_str \"__import__"),
        (guards, "guards, which are Python code"),
        (name_of_a_node, "name 'x; import os'"),
        (custom_object, "an argument of kind as_custom_obj"),
        (metadata, "an entry 'metadata'"),
    ],
)
def test_code_in_a_graph(
    change: Callable[[dict], None], found: str, torch_file: Exported, tmp_path: Path
) -> None:
    file = rewritten(torch_file.path, tmp_path / "model.pt2", graph(change))
    assert_refused(file, f"opening it might run code: {found}")


def test_an_archive_that_was_only_packed_again_is_opened(
    torch_file: Exported, tmp_path: Path
) -> None:
    """What is refused above is refused for what was put in, not for having been rewritten."""
    file = rewritten(torch_file.path, tmp_path / "model.pt2", lambda members: None)
    assert unseen.load(file).classes == unseen.load(torch_file.path).classes


def test_a_model_of_another_program(torch_file: Exported, tmp_path: Path) -> None:
    other = tmp_path / "other.pt2"
    rewritten(torch_file.path, other, lambda members: members.update({"extra/unseen.json": b"{}"}))
    assert_refused(other, "was not made by this version of 'unseen export'")


def test_what_is_no_model(run: unseen.Run, tmp_path: Path) -> None:
    assert_refused(tmp_path / "nowhere", "there is no model .*nowhere; expected a run folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_refused(empty, "empty is not a model; expected a run folder")
    assert_refused(
        run.folder.path.parent, r"It holds runs; name one of them, for example .*digits-small"
    )
    assert_refused(run.folder.result, r"result\.json is not a model")
    begun = tmp_path / "begun"
    shutil.copytree(run.folder.path, begun)
    (begun / "result.json").unlink()
    assert_refused(begun, "is not finished; go on with: unseen train")
    shutil.copy(run.folder.result, begun)
    content = json.loads((begun / "result.json").read_text())
    del content["classes"]
    (begun / "result.json").write_text(json.dumps(content))
    assert_refused(begun, r"is no result of a run: it lacks 'classes'; train the run again")
