"""Opens every kind of model: a run, a saved folder, an ONNX file."""

from itertools import islice
from pathlib import Path

from unseen.errors import UnseenError
from unseen.results.folder import RunFolder, find_runs
from unseen.serve.predictor import Predictor

_EXPECTED = (
    "expected a run folder, a folder made by save_pretrained, or a file made by "
    "'unseen export --to onnx'"
)


def load(path: str | Path, device: str = "auto") -> Predictor:
    """A model to use. A run folder gives the weights that its selection rule chose.

    Opening a file never runs code in it. `device` is `auto`, or a device as torch names it.
    """
    path = Path(path)
    if path.is_dir():
        return _from_folder(path, device)
    if not path.is_file():
        raise UnseenError(f"there is no model {path}; {_EXPECTED}")
    if path.suffix == ".onnx":
        from unseen.serve.onnx import OnnxModel

        return OnnxModel(path, device)
    if path.suffix == ".pt2":
        raise UnseenError(
            f"{path} is a file of torch.export, which unseen writes but does not open: it may hold "
            "code. Name the run folder, the saved model or an .onnx file; programs with torch open "
            "a file they trust with torch.export.load(path).module()"
        )
    raise UnseenError(f"{path} is not a model; {_EXPECTED}")


def _from_folder(path: Path, device: str) -> Predictor:
    from unseen.serve.model import Model

    folder = RunFolder(path)
    if folder.settings.is_file():
        return Model.from_run(folder, device)
    if (path / "config.json").is_file():
        return Model.from_folder(path, device)
    below = [run.path for run in islice(find_runs(path), 1)]
    hint = f" It holds runs; name one of them, for example {below[0]}" if below else ""
    raise UnseenError(f"{path} is not a model; {_EXPECTED}.{hint}")
