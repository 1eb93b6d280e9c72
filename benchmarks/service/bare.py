"""python -m benchmarks.service.bare MODEL.onnx: the file that one would write oneself to serve a
model, with FastAPI and onnxruntime and nothing else. The service is compared with it."""

import socket
import sys

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, UploadFile
from PIL import Image

CLASSES = [f"class {number}" for number in range(10)]


def main() -> None:
    session = onnxruntime.InferenceSession(sys.argv[1])
    app = FastAPI()

    @app.post("/predict")
    def predict(images: list[UploadFile]) -> dict[str, list[dict[str, float]]]:
        found: list[dict[str, float]] = []
        for each in images:
            pixels = np.asarray(Image.open(each.file).convert("RGB"))[None]
            [probabilities] = session.run(None, {"images": pixels})[0]
            found.append(dict(zip(CLASSES, probabilities.tolist(), strict=False)))
        return {"images": found}

    listening = socket.create_server(("127.0.0.1", 0))
    print(f"Serving at http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
    config = uvicorn.Config(app, log_level="error")
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main()
