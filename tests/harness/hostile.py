"""Hostile files made from good ones by mutation: findings and exported networks that somebody changed.

A case is a kind of mutation and a seed: the same case of the same file is the same bytes. What is changed carelessly is
damage, which sums of bytes show; what is changed by a forger has right sums again.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CANARY = "canary_of_the_tests"
"""A module that writes a file of its name into the working folder as soon as it is imported, or called."""

EVIL = (
    *(f"{CANARY}:run", "os:system", "torch.hub:load", "subprocess:run", "builtins:exec"),
    "topk_platform.cli:main",
)
_DEEP = 100_000
_NASTY: tuple[Any, ...] = (
    *(None, True, False, "", -1, 0, 1, 2**31, 2**63, 10**30, 1e308, -1e308, float("nan"), float("inf"), 0.5),
    *([], {}, [[]], {"": None}, {"type": "Study"}),
    *("\x1b[31mred\x1b[0m", "a\nb", "../../x", "/etc/passwd", "x" * 5000),
    *("\u202eabc", "\ud800", "💥", "nan", "1e999", "%s%n", "'; drop table ledger; --", *EVIL),
)


def write_canary(folder: Path) -> None:
    """Write the module that must never run, and a repository for ``torch.hub`` that must not either."""
    sung = "from pathlib import Path\nPath('CANARY').write_text('sung')\n"
    (folder / f"{CANARY}.py").write_text(f"{sung}def run(*args, **more):\n    raise SystemExit(99)\n")
    (folder / "hubconf.py").write_text(
        f"{sung}dependencies = []\ndef net(*args, **more):\n    raise SystemExit(99)\n"
    )


def sung(folder: Path) -> bool:
    """Whether the canary ran."""
    return (folder / "CANARY").exists()


# What is common to all kinds.


def flipped(content: bytes, rng: random.Random) -> bytes:
    """Change some bits."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 2, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(content: bytes, rng: random.Random) -> bytes:
    """Leave out the end, the beginning or something between, or put some bytes in or behind."""
    start, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    junk = rng.randbytes(rng.choice((1, 100, 5000)))
    parts = content[:start] + content[end:], content[:start] + junk + content[start:]
    return rng.choice((content[:start], content[start:], *parts, b""))


def changed(value: Any, rng: random.Random, times: int = 1) -> Any:
    """Change what JSON holds at some places; the value itself stays."""
    value = json.loads(json.dumps(value))
    for _ in range(times):
        holder = {"": value}
        owner, key = rng.choice(list(_places(holder)))
        _change(owner, key, rng)
        value = holder.get("")
    return value


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)


def _change(owner: Any, key: Any, rng: random.Random) -> None:
    way = rng.choice(("replace", "replace", "replace", "delete", "repeat", "rename", "number"))
    item = owner[key]
    if way == "delete":
        del owner[key]
    elif way == "repeat" and isinstance(owner, list):
        owner.insert(key, item)
    elif way == "rename" and isinstance(owner, dict) and key:
        owner[rng.choice(("type", "x", str(key).upper(), *EVIL))] = owner.pop(key)
    elif way == "number" and isinstance(item, int | float):
        owner[key] = rng.choice((item + 1, -item, item * 10**6, item * 10**12, float(item), str(item)))
    else:
        owner[key] = rng.choice(_NASTY)


def deep(text: str, rng: random.Random) -> str:
    """Put a hundred thousand brackets into JSON, at a place where a value may stand."""
    brackets = rng.choice(("[" * _DEEP + "]" * _DEEP, '{"a":' * _DEEP + "1" + "}" * _DEEP, "[" * _DEEP))
    places = [at + 1 for at, letter in enumerate(text) if letter in ":["]
    at = rng.choice(places)
    return text[:at] + brackets + "," * (text[at - 1] == "[") + text[at:]


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _options(evil: str) -> dict[str, Any]:
    result: dict[str, dict[str, Any]] = {
        "os:system": {"command": "touch CANARY"},
        "torch.hub:load": {"repo_or_dir": ".", "model": "net", "source": "local"},
        "builtins:exec": {"source": "open('CANARY', 'w')"},
    }
    return result.get(evil, {})


CARELESS = ("flipped", "cut")
"""Those that are damage: what is read of such a file nevertheless must be what was read of the good one."""


# Findings.


def _findings_json(good: bytes, rng: random.Random) -> bytes:
    return gzip.compress(
        dumped(changed(json.loads(gzip.decompress(good)), rng, rng.choice((1, 1, 3)))), mtime=0
    )


def _findings_deep(good: bytes, rng: random.Random) -> bytes:
    return gzip.compress(deep(gzip.decompress(good).decode(), rng).encode(), mtime=0)


def _findings_text(good: bytes, rng: random.Random) -> bytes:
    text = rng.choice((flipped, cut))(gzip.decompress(good), rng)
    return rng.choice((gzip.compress(text, mtime=0), text, text.decode("latin1").encode("utf-16")))


FINDINGS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped": flipped,
    "cut": cut,
    "json": _findings_json,
    "deep": _findings_deep,
    "text": _findings_text,
}
"""The mutations of a file of findings."""


# Exported networks.


def _export_config(folder: Path, rng: random.Random) -> None:
    file = folder / "config.json"
    file.write_bytes(dumped(changed(json.loads(file.read_text()), rng, rng.choice((1, 1, 3)))))


def _export_deep(folder: Path, rng: random.Random) -> None:
    file = folder / "config.json"
    file.write_text(deep(file.read_text(), rng))


def _export_bytes(folder: Path, rng: random.Random) -> None:
    file = folder / rng.choice(("config.json", "model.safetensors"))
    file.write_bytes(rng.choice((flipped, cut))(file.read_bytes(), rng))


def _export_references(folder: Path, rng: random.Random) -> None:
    file, evil = folder / "config.json", rng.choice(EVIL)
    content = json.loads(file.read_text())
    content["model"] |= {"name": evil, "options": _options(evil)}
    file.write_bytes(dumped(content))


def _export_header(folder: Path, rng: random.Random) -> None:
    """The header of the tensors, by a forger who also mends the sum."""
    file, config = folder / "model.safetensors", folder / "config.json"
    content = file.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    data = json.loads(content[8 : 8 + length])
    header = dumped(changed(data, rng, 2)) if rng.random() < 0.7 else deep(json.dumps(data), rng).encode()
    size = rng.choice((len(header), len(header), length, 2**40, 2**64 - 1))
    file.write_bytes(struct.pack("<Q", size) + header + content[8 + length :])
    data = json.loads(config.read_text())
    config.write_bytes(dumped({**data, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}))


def _export_options(folder: Path, rng: random.Random) -> None:
    """Options of the network, and sizes of its inputs, that would take terabytes."""
    file = folder / "config.json"
    content = json.loads(file.read_text())
    huge = rng.choice((2**20, 10**9, 10**18, -1, 0, 0.5))
    key = rng.choice(("hidden", "depth", "classes", "shape", "resize", "k"))
    if key in ("hidden", "depth"):
        content["model"]["options"][key] = huge
    elif key == "k":
        content["k"] = huge
    else:
        content["inputs"][key] = [1, huge, huge] if key == "shape" else huge
        content["inputs"]["names"] = []
    file.write_bytes(dumped(content))


def _export_gone(folder: Path, rng: random.Random) -> None:
    file = folder / rng.choice(("config.json", "model.safetensors"))
    file.unlink()
    if rng.random() < 0.5:
        file.mkdir()


EXPORTS: dict[str, Callable[[Path, random.Random], None]] = {
    "config": _export_config,
    "deep": _export_deep,
    "bytes": _export_bytes,
    "references": _export_references,
    "header": _export_header,
    "options": _export_options,
    "gone": _export_gone,
}
"""The mutations of an exported network's folder."""


def mutated_folder(good: Path, to: Path, kind: str, seed: int) -> Path:
    """Return a copy of an exported network that is changed."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(good, to)
    EXPORTS[kind](to, random.Random(f"{kind} {seed}"))
    return to


def mutated_file(
    good: bytes, to: Path, ways: Mapping[str, Callable[..., bytes]], kind: str, seed: int
) -> Path:
    """Write a file that is changed, and return its place."""
    to.write_bytes(ways[kind](good, random.Random(f"{kind} {seed}")))
    return to
