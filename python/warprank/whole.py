# SPDX-License-Identifier: Apache-2.0
"""Files and folders that are whole or not there, whenever writing them ends: by an error, a full disk or a kill."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from .errors import refuse
from .weights import Path

PARTIAL = ".partial"
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux
EXCHANGES_NOT = (errno.ENOSYS, errno.EINVAL)


def write_text(path: Path, text: str) -> None:
    """Writes a file of text."""
    if os.path.exists(path) and not os.path.isfile(path):  # a device, as /dev/stdout
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    part = os.fspath(path) + ".part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)


@contextmanager
def replacing(folder: Path, names: Collection[str]) -> Iterator[str]:
    """A folder "<folder>.partial" to write files of these names into, which then all at once are those of `folder`;
    those of them that were not written are gone from it, other files stay. What a killed process has left of it is
    removed by the next that writes the same."""
    path = os.path.realpath(os.fspath(folder))
    if os.path.exists(path) and not os.path.isdir(path):
        refuse(f"folder '{os.fspath(folder)}'", "a folder, or nothing", "a file")
    partial = path + PARTIAL
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    try:
        yield partial
        if not os.path.exists(path):
            os.rename(partial, path)
            return
        for name in set(os.listdir(path)) - set(names):
            _link(os.path.join(path, name), os.path.join(partial, name))
        _exchange(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _link(old: str, new: str) -> None:
    """A second name for a file, or for all in a folder; a copy where there are no links."""
    def link(old: str, new: str) -> None:
        try:
            os.link(old, new, follow_symlinks=False)
        except OSError:
            shutil.copy2(old, new, follow_symlinks=False)
    if os.path.isdir(old) and not os.path.islink(old):
        shutil.copytree(old, new, symlinks=True, copy_function=link)
    else:
        link(old, new)


def _exchange(a: str, b: str) -> None:
    """Each gets the other's name, at once where the file system can do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None and rename(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), RENAME_EXCHANGE) == 0:
        return
    if rename is not None and ctypes.get_errno() not in EXCHANGES_NOT:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), b)
    aside = b + ".old"
    os.rename(b, aside)
    os.rename(a, b)
    os.rename(aside, a)
