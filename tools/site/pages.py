# SPDX-License-Identifier: Apache-2.0
"""Pages of the site that are no file of docs/: README.md as the first page; one for each public header, its comment on
top as text and its declarations as code, for a primitive also the examples that include it and what was measured of it;
and sources that documents link to.

Doxygen would leave out what stands on top of a header, which is where formulas, shapes and bounds are said.
"""

import os
import re

from mkdocs.structure.files import File, InclusionLevel

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADERS = "include/warprank"
PRIMITIVES = HEADERS + "/ops"
EXAMPLES = "examples/primitives"
STYLE = ".md-grid { max-width: 84rem; }  /* lines of code have 120 columns */\n"
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
LANGUAGES = {".py": "python", ".sh": "sh", ".json": "json", ".proto": "protobuf", ".sql": "sql", ".txt": "text"}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def public_headers():
    """Those that users include, sorted by folder: without detail/, vector code, and the halves of other headers."""
    found = []
    for folder, folders, names in os.walk(os.path.join(ROOT, HEADERS)):
        folders[:] = sorted(name for name in folders if name != "detail")
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in sorted(names)
                  if name.endswith((".hpp", ".cuh")) and not name.endswith("_definitions.hpp")]
    return found


def head_of(text):
    """A header's comment on top as text, and what follows. Sketches are indented by four more, as Markdown has code."""
    match = re.search(r"^#pragma once\n\n((?:///.*\n)+)\n", text, re.M)
    if not match:
        return "", text
    return re.sub(r"^/// ?", "", match[1], flags=re.M), text[: match.start(1)] + text[match.end():]


def declarations_of(code):
    """Code without its licence, includes, what is private, and details."""
    code = re.sub(r"\A// SPDX.*\n", "", code)
    code = re.sub(r"^namespace detail \{\n.*?^\}  // namespace detail\n+", "", code, flags=re.M | re.S)
    code = re.sub(r"^( *) private:\n.*?^\1\};$", r"\1};", code, flags=re.M | re.S)
    code = re.sub(r"^#(pragma once|include .*)\n", "", code, flags=re.M)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"\n\n( *\};)", r"\n\1", code))


def header_page(path):
    head, rest = head_of(read(path))
    name = path.removeprefix("include/")
    code = declarations_of(rest).strip("\n")
    more = examples_of(name) + measured_of(path) if is_primitive(path) else ""
    return f"# {name}\n\n`#include <{name}>`\n\n{head}\n```cpp\n{code}\n```\n{more}"


def is_primitive(path):
    return os.path.dirname(path) == PRIMITIVES and path.endswith(".cuh")


def examples_of(name):
    """The programs of examples/primitives/ that include a header."""
    text = ""
    for example in sorted(os.listdir(os.path.join(ROOT, EXAMPLES))):
        code = read(f"{EXAMPLES}/{example}")
        if f'#include "{name}"' in code:
            text += f"\n## {EXAMPLES}/{example}\n\nTested on every change.\n\n```cpp\n{code}```\n"
    return text


def measured_of(path):
    """The table of a primitive's benchmark in the newest record of a card, which docs/PERFORMANCE.md has first."""
    program = f"`ops_{os.path.splitext(os.path.basename(path))[0]}_bench_gpu`"
    for section in re.split(r"^## ", read("docs/PERFORMANCE.md"), flags=re.M)[1:]:
        record, _, rest = section.partition("\n")
        table = re.search(rf"^\| {re.escape(program)} \|.*\n(?:\|.*\n)+", rest, re.M)
        if record.endswith("/gpu") and table:
            anchor = re.sub(r"[^a-z0-9-]", "", record.lower())
            return (f"\n## Measured\n\nRecord {record}; [Performance](../../PERFORMANCE.md#{anchor}) says what the columns "
                    f"are.\n\n{table[0]}")
    return ""


def first_sentence(path):
    head = " ".join(head_of(read(path))[0].split("\n\n")[0].split())
    return (re.split(r"(?<=\w)(?<! al)[.:](?: |$)", head)[0].rstrip(":") + ".") if head else ""


def contents(headers):
    lines, folder = ["# Headers", "", "What users include. `warprank/host.hpp` has everything that runs without CUDA, "
                     "`warprank/cuda_engine.cuh` the engine on a GPU; every op can be included alone."], None
    for path in headers:
        if os.path.dirname(path) != folder:
            folder = os.path.dirname(path)
            lines += ["", f"## {folder.removeprefix('include/')}", "", "| | |", "|---|---|"]
        target = path.removeprefix("include/warprank/") + ".md"
        lines.append(f"| [{os.path.basename(path)}]({target}) | {first_sentence(path)} |")
    return "\n".join(lines) + "\n"


def primitives(headers):
    lines = ["# Primitives", "", "CUDA kernels, each usable by itself: planned on the host, launched on a stream of yours. "
             "[contract.hpp](api/ops/contract.hpp.md) says how all are used, [resident.hpp](api/ops/resident.hpp.md) has "
             "their memory.", "", "| Header | One launch computes |", "|---|---|"]
    for path in filter(is_primitive, headers):
        lines.append(f"| [{os.path.basename(path)}]({page_of(path)}) | {first_sentence(path)} |")
    return "\n".join(lines) + "\n"


def page_of(target):
    """The page of the site for a file of the repository, from the site's root; None where there is none."""
    if target == "README.md":
        return "index.md"
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target.startswith(HEADERS + "/") and "/detail/" not in target and target.endswith((".hpp", ".cuh")):
        return "api/" + target.removeprefix(HEADERS + "/") + ".md"
    return "source/" + target + ".md" if os.path.isfile(os.path.join(ROOT, target)) else None


def relinked(markdown, source):
    """Links to files of the repository become links to pages; folders, which have none, are named."""
    here = os.path.dirname(page_of(source))

    def replace(match):
        if "://" in match[2]:
            return match[0]
        target = os.path.normpath(os.path.join(os.path.dirname(source), match[2]))
        page = page_of(target)
        return match[1] + (os.path.relpath(page, here or ".") if page else "#") + (match[3] if page else ")")

    return LINK.sub(replace, markdown)


def linked_sources(documents):
    """Files of the repository that documents link to, and documents among these, and that are no page otherwise."""
    targets, unread = set(), list(documents)
    while unread:
        document = unread.pop()
        for _, link, _ in LINK.findall(read(document)):
            target = os.path.normpath(os.path.join(os.path.dirname(document), link))
            if "://" not in link and target not in targets and (page_of(target) or "").startswith("source/"):
                targets.add(target)
                unread += [target] if target.endswith(".md") else []
    return sorted(targets)


def source_page(path):
    if path.endswith(".md"):
        return relinked(read(path), path)
    language = LANGUAGES.get(os.path.splitext(path)[1], "cpp")
    return f"# {path}\n\n````{language}\n{read(path)}\n````\n"


def on_files(files, config):
    def add(page, content, in_nav=False):
        inclusion = InclusionLevel.INCLUDED if in_nav else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, page, content=content, inclusion=inclusion))

    documents = ["README.md"] + sorted("docs/" + file.src_uri for file in files.documentation_pages())
    headers = public_headers()
    add("wide.css", STYLE)
    add("index.md", read("README.md"), in_nav=True)
    add("api/index.md", contents(headers), in_nav=True)
    add("primitives.md", primitives(headers), in_nav=True)
    for path in headers:
        add(page_of(path), header_page(path))
    for path in linked_sources(documents):
        add(page_of(path), source_page(path))
    return files


def on_page_markdown(markdown, page, **_):
    if page.file.src_uri == "index.md":
        return relinked(markdown, "README.md")
    if "/" in page.file.src_uri or page.file.src_uri == "primitives.md":
        return markdown
    return relinked(markdown, "docs/" + page.file.src_uri)
