"""Container images as archives in the format of ``docker save``, written without a container engine.

Every engine and containerd import this format. An image has one or more layers, each an archive of files.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ImageConfig:
    """How a container of an image is started, as root."""

    entrypoint: Sequence[str]
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def layer_of_programs(programs: Mapping[str, bytes | Path]) -> bytes:
    """Return a layer with executable files: their paths in the image, and their content or where it is."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as layer:
        for place, source in programs.items():
            content = source.read_bytes() if isinstance(source, Path) else source
            _add(layer, place.lstrip("/"), content, mode=0o755)
    return stream.getvalue()


def layer_of_archive(archive: Path, *, without: Sequence[str]) -> bytes:
    """Return a layer with the files of an archive, except for some paths and what is below them."""
    stream = io.BytesIO()
    with tarfile.open(archive) as source, tarfile.open(fileobj=stream, mode="w") as layer:
        for entry in source:
            path = entry.name.removeprefix("./")
            if not any(path == left_out or path.startswith(f"{left_out}/") for left_out in without):
                content = source.extractfile(entry) if entry.isfile() else None
                layer.addfile(entry, content)
    return stream.getvalue()


def content_of(archive: Path, path: str) -> bytes:
    """Return the content of a file in an archive that was made of a directory."""
    with tarfile.open(archive) as source:
        content = source.extractfile(f"./{path}")
        assert content is not None, f"{path} in {archive} is not a file"
        return content.read()


def write_image(
    archive: Path, names: Sequence[str], layers: Sequence[bytes], config: ImageConfig, *, architecture: str
) -> None:
    """Write an image with these names and layers, from the lowest to the highest. ``architecture`` as Go names it."""
    digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
    described: dict[str, Any] = {
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": list(config.entrypoint),
            "Cmd": list(config.command),
            "Env": [f"{key}={value}" for key, value in config.environment.items()],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }
    content = json.dumps(described).encode()
    config_name = f"{hashlib.sha256(content).hexdigest()}.json"
    layer_names = [f"{digest}/layer.tar" for digest in digests]
    manifest = [{"Config": config_name, "RepoTags": list(names), "Layers": layer_names}]
    with tarfile.open(archive, mode="w") as image:
        _add(image, config_name, content)
        for layer_name, layer in zip(layer_names, layers, strict=True):
            _add(image, layer_name, layer)
        _add(image, "manifest.json", json.dumps(manifest).encode())


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))
