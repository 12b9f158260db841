#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the includes of include/warprank/ against the table "The folders" in docs/ARCHITECTURE.md, whose last column names
the folders that each folder knows of, and finds files that include one another.

    scripts/check_includes.py [--root FOLDER]

A row is for a folder and what lies below it, but for what has a row of its own. Headers that lie beside the folders are
for users: they may include everything, but for companions, the folders of the table that begins with "Companion". The core
never includes these, whatever its rows say; serving.hpp is one of serving/. A header and its definitions, as builder.hpp
and builder_ops_definitions.hpp, may include one another.
"""

import argparse
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADING = "## The folders"


def knows_of(document):
    """{folder: set of folders}, from the tables behind the heading, and the companions among them."""
    table = document.partition(HEADING)[2].partition("\n## ")[0]
    known = {}
    companions = set()
    are_companions = False
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        folders = re.findall(r"`([\w/]+)/`", cells[0])
        are_companions = cells[0] == "Companion" or are_companions
        if len(cells) != 3 or not folders:
            continue
        companions.update(folders if are_companions else ())
        named = set() if cells[2] == "nothing" else {name.strip() for name in cells[2].split(",")}
        for folder in folders:
            known[folder] = named
    return known, companions


def includes_of(root):
    """{header: [(line, header)]}, by paths below include/warprank."""
    base = f"{root}/include/warprank"
    found = {}
    for folder, _, files in os.walk(base):
        for name in files:
            path = f"{folder}/{name}"
            with open(path, encoding="utf-8") as file:
                found[os.path.relpath(path, base)] = [
                    (number, match[1]) for number, line in enumerate(file, 1)
                    if (match := re.match(r'\s*#\s*include\s*["<]warprank/([^">]+)[">]', line))]
    return found


def folder_of(header, folders):
    """The row that a header belongs to; "" for one beside the folders, None for one in a folder without a row."""
    folder = os.path.dirname(header)
    if not folder:
        return ""
    while folder and folder not in folders:
        folder = os.path.dirname(folder)
    return folder or None


def arrows_back(includes, known):
    """A complaint for each include that the table does not allow."""
    for header, lines in sorted(includes.items()):
        folder = folder_of(header, known)
        if folder is None:
            yield f"{header}: expected its folder in the table of docs/ARCHITECTURE.md, got none"
            continue
        if folder == "":
            continue
        for line, other in lines:
            of_other = folder_of(other, known)
            name = other if of_other == "" else of_other
            if name not in known[folder] and name != folder:
                yield (f"{header}:{line}: includes {other}: expected one of {folder}/ or of what it knows of "
                       f"({', '.join(sorted(known[folder])) or 'nothing'})")


def companions_in_core(includes, known, companions):
    """A complaint for each include of a companion in the core."""
    def companion_of(header):
        folder = folder_of(header, known) or os.path.splitext(header)[0]
        return folder if folder in companions else None

    for header, lines in sorted(includes.items()):
        for line, other in lines:
            if companion_of(other) and not companion_of(header):
                yield f"{header}:{line}: includes {other}: the core never includes a companion, as {companion_of(other)}/ is"


def circles(includes):
    """A complaint for each circle of files."""
    def is_definition(a, b):
        return os.path.splitext(b)[0].startswith(os.path.splitext(a)[0] + "_") and b.endswith("_definitions.hpp")

    state = {}  # 1: on the path, 2: done
    path = []

    def visit(header):
        state[header] = 1
        path.append(header)
        for _, other in includes.get(header, ()):
            if is_definition(header, other) or is_definition(other, header):
                continue
            if state.get(other) == 1:
                yield "a circle of includes: " + " -> ".join([*path[path.index(other):], other])
            elif other not in state:
                yield from visit(other)
        path.pop()
        state[header] = 2

    for header in sorted(includes):
        if header not in state:
            yield from visit(header)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=ROOT)
    root = parser.parse_args().root
    with open(f"{root}/docs/ARCHITECTURE.md", encoding="utf-8") as file:
        known, companions = knows_of(file.read())
    includes = includes_of(root)
    complaints = [*arrows_back(includes, known), *companions_in_core(includes, known, companions), *circles(includes)]
    print(*complaints, sep="\n", end="\n" if complaints else "")
    print(f"{len(includes)} headers, {len(known)} folders, {len(complaints)} complaints")
    sys.exit(bool(complaints) or not known or not includes)


if __name__ == "__main__":
    main()
