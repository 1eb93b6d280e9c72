"""Writing ONNX files, for onnxruntime on machines without unseen and without torch."""

import contextlib
import io
import json
import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch.export import ExportedProgram

from unseen.optional import require
from unseen.serving.export.metadata import UNKNOWN, Metadata


def write_onnx(program: ExportedProgram, metadata: Metadata, path: Path) -> None:
    """One file. Names of classes and domains are in its metadata; `domain` has a default."""
    onnx = require("onnx", "onnx")
    require("onnxscript", "onnx")
    n_names = 2 if metadata.opinions else 1
    inputs, outputs = ["images", "domain"][:n_names], ["probabilities", "opinions"][:n_names]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    # the converter reports its progress on stdout, and warns about its own internals
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        converted = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=inputs, output_names=outputs
        )
    assert converted is not None
    model = converted.model_proto
    if metadata.opinions:  # an input that has an initial value may be left out
        default = onnx.numpy_helper.from_array(np.array(UNKNOWN, dtype=np.int64), "domain")
        model.graph.initializer.append(default)
    values = {key: json.dumps(value) for key, value in metadata._asdict().items()}
    onnx.helper.set_model_props(model, values)
    model.producer_name = "unseen"
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(path, full_check=True)
