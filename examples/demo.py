"""Compiles Google's Magika (a file type classifier), runs it on this repository's README, and runs the package alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "models"))

from zoo import TRAINED, Trained, fetched, model_path

import everport
from everport.ir.knobs import cache_dir

CONFIG = Trained(
    TRAINED["magika"].package,
    "magika/models/standard_v3_3/config.min.json",
    "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
)


def features(data: bytes, config: dict) -> np.ndarray:
    """The first and last bytes of a file without surrounding white space, padded: int32 of shape (1, begin + end)."""
    block = config["block_size"]
    begin = data[:block].lstrip()[: config["beg_size"]]
    end = data[-block:].rstrip()[-config["end_size"] :]
    row = np.full(config["beg_size"] + config["end_size"], config["padding_token"], np.int32)
    row[: len(begin)] = list(begin)
    row[len(row) - len(end) :] = list(end)
    return row[None]


def main() -> None:
    config = json.loads(fetched(CONFIG, cache_dir() / "models" / "magika.config.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        package = everport.compile(model_path("magika"), output=Path(folder) / "magika.everport")
        print(f"compiled {package.name}: {package.stat().st_size / 1e6:.1f} MB")
        x = features((ROOT / "README.md").read_bytes(), config)
        with everport.load(package) as model:
            scores = model(x)[0]
        best = int(np.argmax(scores))
        print(f"README.md is {config['target_labels_space'][best]} (probability {scores[best]:.3f})")
        np.save(Path(folder) / "bytes.npy", x)
        # The package by itself: -I keeps this project off the path, so that only the package's own runtime and numpy are used.
        command = [sys.executable, "-I", str(package), "--input", "bytes.npy"]
        print(f"$ python {package.name} --input bytes.npy")
        subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    main()
