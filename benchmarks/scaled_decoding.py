"""What decoding large JPEGs at a part of their size costs in accuracy, and what it saves.

python -m benchmarks.scaled_decoding [images of each class]: PACS photographs, below $UNSEEN_DATA,
enlarged to 1600 x 1200 and saved as JPEG, are prepared both ways. Linear classifiers on features of
EfficientNet-Lite0 name them: one of photographs (five folds), one of paintings and cartoons.
"""

import io
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from unseen.data.augment import PixelScale, to_input
from unseen.data.images import open_image, to_square
from unseen.networks.backbones import build_network
from unseen.settings.experiment import NetworkSettings

SIZE, LARGE = 224, (1600, 1200)


def files_of(domain: str, number: int) -> list[Path]:
    """Return so many files of each class, evenly spaced."""
    folders = sorted((Path(os.environ["UNSEEN_DATA"]) / "PACS/images" / domain).iterdir())
    return [
        files[place]
        for files in (sorted(folder.iterdir()) for folder in folders)
        for place in np.linspace(0, len(files) - 1, number).astype(int)
    ]


def enlarged(file: Path) -> bytes:
    buffer = io.BytesIO()
    image = Image.open(file).convert("RGB").resize(LARGE, Image.Resampling.BICUBIC)
    image.save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 80
    settings = NetworkSettings(name="efficientnet_lite0", pretrained=True, image_size=SIZE)
    network = build_network(settings, 7).eval()
    scale = PixelScale(network.mean, network.std)

    @torch.no_grad()
    def features(squares: list[np.ndarray]) -> np.ndarray:
        pixels = torch.as_tensor(np.stack(squares)).permute(0, 3, 1, 2)
        parts = [network.run(to_input(p, scale), until=network.head) for p in pixels.split(64)]
        return torch.cat(parts).flatten(1).numpy()

    sources = [*files_of("art_painting", number), *files_of("cartoon", number)]
    photographs = files_of("photo", number)
    squares: dict[str, list[np.ndarray]] = {"whole": [], "scaled": []}
    seconds = dict.fromkeys(squares, 0.0)
    for file in photographs:
        data = enlarged(file)
        for way, side in (("whole", None), ("scaled", SIZE)):
            start = time.process_time()
            squares[way].append(to_square(open_image(data, file.name, side=side), SIZE))
            seconds[way] += time.process_time() - start
    labels = np.array([file.parent.name for file in photographs])
    of_photographs = {way: features(images) for way, images in squares.items()}
    there = features([to_square(open_image(file, file.name), SIZE) for file in sources])
    elsewhere = LogisticRegression(C=0.01, max_iter=500)
    elsewhere.fit(there, [file.parent.name for file in sources])
    print("| decoded | ms an image | photographs, five folds | from paintings and cartoons |")
    print("|---|---:|---:|---:|")
    named = {}
    for way, values in of_photographs.items():
        within = cross_val_predict(LogisticRegression(C=0.01, max_iter=500), values, labels)
        named[way] = elsewhere.predict(values)
        accuracy = [f"{100 * (found == labels).mean():.1f} %" for found in (within, named[way])]
        milliseconds = 1000 * seconds[way] / len(labels)
        print(f"| {way} | {milliseconds:.1f} | {' | '.join(accuracy)} |")
    difference = np.abs(np.stack(squares["whole"]).astype(int) - np.stack(squares["scaled"]))
    same = (named["whole"] == named["scaled"]).mean()
    print(f"{len(labels)} photographs; {same:.1%} named the same from elsewhere; ", end="")
    print(f"pixels differ by {difference.mean():.2f} of 255 on average")


if __name__ == "__main__":
    main()
