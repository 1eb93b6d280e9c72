"""A .pt2 file is opened only when nothing in it can run code.

torch's loader unpickles weights, constants and sample inputs that ask for it, evaluates symbolic
sizes and guards as Python, and finds operators by walking attributes of the torch module, from
which any function can be reached. Files of `unseen export` need none of this, so whatever looks
like it is refused.
"""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.export.pt2_archive import PT2ArchiveReader

from unseen.errors import UnseenError

ABOUT = "unseen.json"
_GRAPH = "models/model.json"
_TABLES = {
    "data/weights/model_weights_config.json": re.compile(r"weight_\d+"),
    "data/constants/model_constants_config.json": re.compile(r"tensor_\d+"),
}
_SAMPLES = "data/sample_inputs/model.pt"
_MEMBERS = re.compile(
    r"archive_format|archive_version|byteorder|\.data/version|\.data/serialization_id|"
    r"models/model\.json|data/weights/(weight_\d+|model_weights_config\.json)|"
    r"data/constants/(tensor_\d+|model_constants_config\.json)|"
    rf"data/sample_inputs/model\.pt|extra/{re.escape(ABOUT)}"
)
_OPERATORS = re.compile(
    r"torch\.ops\.aten\.\w+\.\w+|"
    r"_operator\.(add|sub|mul|floordiv|mod|neg|truediv|getitem|eq|ne|lt|le|gt|ge)|"
    r"torch\.(sym_max|sym_min|sym_int|sym_float|sym_not)"
)
_EXPRESSION = re.compile(
    r"(Symbol\('[su]\d+'(, (positive|nonnegative|integer)=True)*\)|Integer\(-?\d+\)|"
    r"(Add|Mul|Min|Max|FloorDiv|CleanDiv|Mod)(?=\()|-?\d+|[(), ])*"
)
_STRUCTURE = re.compile(r'(builtins\.(tuple|list|dict)|[\w"\[\]{}:, \\])*')
_WORD = re.compile(r"[\w.+]*")
_ARGUMENTS = re.compile(
    r"as_(tensors?|optional_tensors|ints?|floats?|bools?|string|none|name|expr|sym_ints?|"
    r"scalar_type|device|layout|memory_format)"
)


def check_archive(path: Path, content: bytes) -> dict[str, Any]:
    """What the file says about itself; raises for anything but a plain graph with plain tensors."""
    try:
        archive = PT2ArchiveReader(io.BytesIO(content))
        names = archive.get_file_names()
        problems = list(_problems(archive, names))
        about = json.loads(archive.read_string(f"extra/{ABOUT}")) if not problems else {}
    except Exception as error:  # torch's reader raises nearly anything
        reason = str(error).strip().partition("\n")[0]
        raise UnseenError(
            f"{path} is damaged or not a file of 'unseen export --to torch' ({reason}); "
            "make it again: unseen export RUN --to torch"
        ) from error
    if problems:
        raise UnseenError(
            f"{path} holds what no file of 'unseen export' does, and opening it might run code: "
            f"{problems[0]}. It was not opened; use only files from people you trust"
        )
    return about if isinstance(about, dict) else {}


def _problems(archive: PT2ArchiveReader, names: list[str]) -> Iterator[str]:
    yield from (f"the member {name}" for name in names if not _MEMBERS.fullmatch(name))
    for table, pattern in _TABLES.items():
        for name, entry in json.loads(archive.read_string(table))["config"].items():
            if entry["use_pickle"] is not False or not pattern.fullmatch(entry["path_name"]):
                yield f"a pickle as the tensor {name}"
    try:
        torch.load(io.BytesIO(archive.read_bytes(_SAMPLES)), weights_only=True)
    except Exception:  # whatever is wrong with it, torch would go on to unpickle it without care
        yield "a pickle as sample inputs"
    graph = json.loads(archive.read_string(_GRAPH))
    if graph.get("guards_code"):
        yield "guards, which are Python code"
    yield from _strange_parts(graph)


def _strange_parts(part: Any, key: str = "") -> Iterator[str]:
    """Every text in the graph is a name, a known operator, or a sum or product of sizes."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name.startswith("as_") and not _ARGUMENTS.fullmatch(name):
                yield f"an argument of kind {name}"
            if not _WORD.fullmatch(name) or (name == "metadata" and value):
                yield f"an entry {name!r}"
            yield from _strange_parts(value, name)
    elif isinstance(part, list):
        for value in part:
            yield from _strange_parts(value, key)
    elif isinstance(part, str) and not _allowed(key).fullmatch(part):
        yield f"{key or 'text'} {part[:60]!r}"


def _allowed(key: str) -> re.Pattern[str]:
    if key == "target":
        return _OPERATORS
    if key == "expr_str":
        return _EXPRESSION
    return _STRUCTURE if key in {"in_spec", "out_spec"} else _WORD
