# SPDX-License-Identifier: Apache-2.0
"""No module of the package imports, by whatever way, one that imports it."""

import ast
from pathlib import Path

import warprank


def modules():
    """By name the file of each."""
    root = Path(warprank.__file__).parent
    parts = {path: ("warprank", *path.relative_to(root).with_suffix("").parts) for path in root.rglob("*.py")}
    return {".".join(p for p in names if p != "__init__"): path for path, names in parts.items()}


def imported(name, path, known):
    """The modules of the package that one imports, also within functions and for type hints."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[:len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            below = {f"{base}.{alias.name}" for alias in node.names}
            found |= below & known or {base}
    return found & known - {name, "warprank"}  # whose names are those of users; it is whole before what is below


def test_no_circles():
    files = modules()
    imports = {name: imported(name, path, set(files)) for name, path in files.items()}
    assert "warprank.errors" in imports["warprank.columns"] and len(files) > 50

    def behind(name):
        seen, new = set(), {name}
        while new:
            new = set().union(*(imports[n] for n in new)) - seen
            seen |= new
        return seen
    circles = sorted(name for name in files if name != "warprank" and name in behind(name))
    assert circles == []
