#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/LANGUAGE.md, the reference of the model language: signatures and options from model/builder.hpp, texts and
examples from examples/language/ops.hpp, shapes, learned tensors and kernels from the program that plans the examples.

    tools/language_page.py PROGRAM           writes it; PROGRAM is build/cpu/examples/language
    tools/language_page.py PROGRAM --check   fails when it is not what these say, or when a function has no section
"""

import argparse
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILDER = "include/warprank/model/builder.hpp"
EXAMPLES = "examples/language/ops.hpp"
PAGE = "docs/LANGUAGE.md"

# Kernels whose header has another name.
HEADERS = {"pool": "segment_reduce"}
# What is no kernel of a header: a copy, and the caller's own function.
WITHOUT_HEADER = ("concat", "custom")

INTRODUCTION = f"""# The model language

Every function of `Builder` ([`{BUILDER}`](../{BUILDER})):
what it computes, what its weights are called here, in PyTorch and in Keras, an example, and what the planner makes of
the example on a GPU. Weights are named after the layer; [`tools/train_movielens.py`](../tools/train_movielens.py) shows
a whole export.

Everything lives on a named axis: a tensor [item, 64] has 64 columns for each item of each request. In formulas x and y
are a row, and * is element by element. Wrong calls are thrown together, each with its file and line.

This page is made by `tools/language_page.py`; its examples are compiled and planned
([`{EXAMPLES}`](../{EXAMPLES})).
"""


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def names_as_code(text):
    """`"<name>.weight"` would be taken for HTML."""
    return re.sub(r'"((?:<|\.)[^"\s]*)"', r"`\1`", text)


def text_of(comment):
    """The text of lines that begin with `///`."""
    return names_as_code("\n".join(re.sub(r"^\s*/// ?", "", line) for line in comment.strip("\n").split("\n")))


def functions_of(builder):
    """By name, in order: [(signature, what is said of it)] of every public function that models call."""
    public = builder[builder.index(" public:\n") : builder.index(" private:\n")]
    public = re.sub(r"^  // .*\n", "", public, flags=re.M)
    found, comment = {}, ""
    for match in re.finditer(r"((?:^  ///.*\n)*)^  (\w[\w:<>]* (\w+)\((?:[^;{]|\{\})*?\))(?: \{.*|;)", public, re.M):
        comment = text_of(match[1]) if match[1] else ""
        signature = re.sub(r",?\s*SourceLine at = SourceLine::current\(\)", "", " ".join(match[2].split()))
        if match[3] != "finish":
            found.setdefault(match[3], []).append((signature, comment))
    return found


def options_of(builder):
    """By name of a struct of options: [(member, default, what is said of it)]."""
    structs = {}
    for name, body in re.findall(r"^struct (\w+Options) \{\n(.*?)^\};", builder + read("include/warprank/model/types.hpp"),
                                 re.M | re.S):
        members = re.findall(r"^  (\S.*?) (\w+) = (.*?);(?: +///< (.*))?$", body, re.M)
        if silent := [member for _, member, _, said in members if not said]:
            raise SystemExit(f"{name}: expected a text for every member (///<), got none for {', '.join(silent)}")
        structs[name] = [(member, "nothing" if "optional" in kind else "none" if default == "{}" else f"`{default}`",
                          names_as_code(said)) for kind, member, default, said in members]
    return structs


def sections_of(examples):
    """Yields (title of a group or None, names, text, code, name of the example)."""
    for match in re.finditer(r"^// ## (.+)$|^/// ### (.+)\n((?:^///.*\n)*)^(inline Outputs (\w+)\(Builder& b\) \{\n(?:.*\n)*?\}\n)",
                             examples, re.M):
        if match[1]:
            yield match[1], [], "", "", ""
        else:
            yield None, match[2].split(", "), text_of(match[3]).strip("\n"), match[4], match[5]


def kernel(name):
    header = HEADERS.get(name, name)
    return name if name in WITHOUT_HEADER else f"[{name}](../include/warprank/ops/{header}.cuh)"


def facts_table(facts):
    rows = [("gives", ", ".join(f"`{name}` [{axis}, {width}]" for name, axis, width in facts["outputs"])),
            ("tables", ", ".join(f"`{name}` [rows, {dim}]" for name, dim in facts["tables"] or [])),
            ("learned", ", ".join(f"`{name}` {shape}" for name, shape in facts["learned"] or [])),
            ("on a GPU", f"{facts['launches']} launch{'es' if facts['launches'] > 1 else ''}: "
                         + ", ".join(kernel(name) for name in facts["kernels"])
                         + ("" if facts["kernels"][0] == "embedding_bag" else ", after that of the inputs"))]
    return "| | |\n|---|---|\n" + "".join(f"| {what} | {said} |\n" for what, said in rows if said)


def page(program):
    builder = read(BUILDER)
    functions, options = functions_of(builder), options_of(builder)
    facts = json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)
    lines, contents, covered = [], [], set()
    for group, names, text, code, example in sections_of(read(EXAMPLES)):
        if group:
            lines.append(f"## {group}\n")
            contents.append(f"| {group} | ")
            continue
        title = ", ".join(names)
        anchor = re.sub(r"[^\w ]", "", title).replace(" ", "-")
        contents[-1] += ("" if contents[-1].endswith("| ") else " · ") + f"[{title}](#{anchor})"
        lines.append(f"### {title}\n")
        used = []
        for name in names:
            if name not in functions:
                raise SystemExit(f"{EXAMPLES}: {name}: expected a function of Builder ({BUILDER})")
            covered.add(name)
            for signature, said in functions[name]:
                lines.append(f"`{signature}`\n")
                lines.append(f"{said}\n" if said else "")
                used += [struct for struct in re.findall(r"\w+Options", signature) if struct not in used]
        lines.append(text + "\n")
        for struct in used:
            lines.append(f"| `{struct}` | unless given | |\n|---|---|---|\n" + "".join(
                f"| `{member}` | {default} | {said} |\n" for member, default, said in options[struct]))
        lines.append(f"```cpp\n{code}```\n")
        lines.append(facts_table(facts.pop(example)))
    if missing := [name for name in functions if name not in covered]:
        raise SystemExit(f"{EXAMPLES}: expected a section for every function of Builder, got none for {', '.join(missing)}")
    if facts:
        raise SystemExit(f"{EXAMPLES}: expected a section for every example of the program, got none for {', '.join(facts)}")
    table = "| | |\n|---|---|\n" + "".join(line + " |\n" for line in contents)
    return "\n".join([INTRODUCTION, table] + [line for line in lines if line])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    made = page(options.program)
    if options.check:
        if made != read(PAGE):
            raise SystemExit(f"{PAGE}: expected what {EXAMPLES} and {BUILDER} say: run tools/language_page.py "
                             f"{options.program}")
        return
    with open(os.path.join(ROOT, PAGE), "w", encoding="utf-8") as file:
        file.write(made)


if __name__ == "__main__":
    sys.exit(main())
