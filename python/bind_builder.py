#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the binding of the Builder: bind_builder.py BUILDER.hpp TYPES.hpp OUT

Reads the public methods of `class Builder` and the structs of options that they take, with their documentation, so that
an op that is added to the language is in Python without another line. What it cannot read is an error of the build.
"""

import re
import sys
from pathlib import Path

# `#include`d by src/builder.cpp, where `builder` is the nb::class_.
METHOD = """  builder.def(
      "{name}",
      [](Builder& receiver{declared}) -> {result} {{
        const Caller caller;
        [[maybe_unused]] const SourceLine at = caller.at();
        return receiver.{name}({passed}at);
      }},
      {arguments}R"doc({doc})doc", nb::call_policy<KeepsBuilder>());
"""


def fail(what, text):
    sys.exit(f"bind_builder.py: cannot read {what}:\n{text}")


def split(text):
    """At the commas that are in no brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return [p.strip() for p in parts + [part] if p.strip()]


def declaration(text):
    """type, name, default (None: there is none) of a parameter or a member."""
    match = re.fullmatch(r"(?:const )?([\w:<>, ]+?)[&]? (\w+)(?: = (.+))?", text)
    if not match:
        fail("a declaration", text)
    return match.groups()


def documentation(comment):
    return re.sub(r"^\s*///<? ?", "", comment, flags=re.M).strip()


def options_of(header):
    """By the name of each struct of options its members: type, name, documentation."""
    structs = {}
    for match in re.finditer(r"^struct (\w+Options) \{\n(.*?)^\};", header, re.M | re.S):
        members = []
        for line in re.sub(r"\n\s+///<", " ///<", match[2]).splitlines():
            code, _, comment = line.partition("///<")
            if not code.strip():
                fail(f"struct {match[1]}", line)
            type_, name, _ = declaration(code.strip().removesuffix(";"))
            members.append((type_, name, comment.strip()))
        structs[match[1]] = members
    return structs


def methods_of(header):
    """(documentation, result, name, parameters) of every public method of the Builder that says where it was called."""
    body = re.search(r"^class Builder \{\n public:\n(.*?)^ private:", header, re.M | re.S)
    if not body:
        fail("class Builder", header[:200])
    doc = ""
    methods = []
    # Each line is a comment, one of documentation, blank, or part of a declaration that ends in ; or of a short body.
    line = r"^  (///[^\n]*)\n|^  //[^\n]*\n|^\n|^  (\S.*?)(?:;\n|\{\n.*?^  \}\n|\{[^\n]*\}\n)"
    for match in re.finditer(line, body[1], re.M | re.S):
        if match[1]:
            doc += match[1] + "\n"
        elif match[2]:
            if "SourceLine at" in match[2]:
                methods.append((documentation(doc), *signature(match[2])))
            doc = ""
        else:
            doc = ""
    if len(methods) != body[1].count("SourceLine at = SourceLine::current()"):
        fail("a method of the Builder", "\n".join(m[2] for m in methods))
    return methods


def signature(text):
    match = re.fullmatch(r"([\w:<>]+) (\w+)\((.*)\)\s*", re.sub(r"\s+", " ", text.strip()))
    if not match:
        fail("a method", text)
    parameters = [declaration(p) for p in split(match[3])]
    if parameters[-1][0] != "SourceLine":
        fail("a method whose last parameter is no SourceLine", text)
    return match[1], match[2], parameters[:-1]


def python_name(member):
    return member + "_" if member == "self" else member


def binding(method, options):
    doc, result, name, parameters = method
    declared, passed, arguments, extra = [], [], [], []
    for type_, parameter, default in parameters:
        if type_ in options:
            members = [(t, python_name(m), m, text) for t, m, text in options[type_]]
            declared += [f"In<{t}> {name}" for t, name, _, _ in members]
            passed.append(f"{type_}{{" + ", ".join(f'value_of<{t}>({n}, "{n}", at)' for t, n, _, _ in members) + "}")
            arguments.append("nb::kw_only()")
            arguments += [f'nb::arg("{name}") = shown<{t}>({type_}{{}}.{m})' for t, name, m, _ in members]
            extra += [f"    {name}: {text}" for _, name, _, text in members if text]
        elif type_ == "Tensor" and default == "{}":
            declared.append(f"std::optional<Tensor> {parameter}")
            passed.append(f"{parameter}.value_or(Tensor{{}})")
            arguments.append(f'nb::arg("{parameter}") = nb::none()')
        else:
            python = "keep_last" if type_ == "KeepLast" else parameter
            declared.append(f"const In<{type_}>& {python}")
            passed.append(f'value_of<{type_}>({python}, "{python}", at)')
            given = "" if default is None else f" = shown<{type_}>({type_ if default == '{}' else ''}{default})"
            arguments.append(f'nb::arg("{python}"){given}')
    if extra:
        doc += "\n\n" + "\n".join(extra)
    return METHOD.format(name=name, result=result, declared="".join(", " + d for d in declared),
                         passed="".join(p + ", " for p in passed), arguments="".join(a + ", " for a in arguments),
                         doc=doc)


def main():
    builder, types, out = map(Path, sys.argv[1:])
    text = builder.read_text()
    options = options_of(types.read_text()) | options_of(text)
    out.write_text("// Made by python/bind_builder.py.\n" +
                   "".join(binding(method, options) for method in methods_of(text)))


if __name__ == "__main__":
    main()
