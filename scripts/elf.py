# SPDX-License-Identifier: Apache-2.0
"""What is in an ELF file of 64 bits, little-endian: an object of the host's or a cubin."""

import struct
from dataclasses import dataclass

SYMBOLS, RELOCATIONS, FUNCTION = 2, 4, 2  # SHT_SYMTAB, SHT_RELA, STT_FUNC


@dataclass
class Section:
    name: str
    kind: int
    info: int
    content: bytes


@dataclass
class Symbol:
    name: str
    kind: int
    section: int  # its number; 0 where it is undefined
    value: int
    size: int


def _text(strings, offset):
    return strings[offset:strings.index(b"\0", offset)].decode(errors="replace")


def sections(content):
    """All sections, by number."""
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("expected an ELF file of 64 bits, little-endian")
    begin, = struct.unpack_from("<Q", content, 0x28)
    entry_bytes, count, index_of_names = struct.unpack_from("<3H", content, 0x3a)
    if count == 0:  # more than 16 bits can say: the first section does
        count, = struct.unpack_from("<Q", content, begin + 0x20)
    if index_of_names == 0xffff:
        index_of_names, = struct.unpack_from("<I", content, begin + 0x28)
    found = []
    for i in range(count):
        name, kind, _, _, offset, size, _, info = struct.unpack_from("<2I4Q2I", content, begin + i * entry_bytes)
        has_content = kind != 8  # SHT_NOBITS
        found.append((name, Section("", kind, info, content[offset:offset + size] if has_content else b"")))
    names = found[index_of_names][1].content
    for name, section in found:
        section.name = _text(names, name)
    return [section for _, section in found]


def symbols(all_sections):
    table = next((s.content for s in all_sections if s.kind == SYMBOLS), b"")
    names = next((s.content for s in all_sections if s.name == ".strtab"), b"\0")
    return [Symbol(_text(names, name), info & 15, section, value, size)
            for name, info, _, section, value, size in struct.iter_unpack("<I2BH2Q", table)]


def callers(content, callee):
    """Names of the functions that refer to the symbol, as they are mangled."""
    all_sections = sections(content)
    all_symbols = symbols(all_sections)
    names = set()
    for relocations in (s for s in all_sections if s.kind == RELOCATIONS):
        functions = [s for s in all_symbols if s.kind == FUNCTION and s.section == relocations.info]
        for offset, info, _ in struct.iter_unpack("<2Qq", relocations.content):
            if all_symbols[info >> 32].name == callee:
                names |= {f.name for f in functions if f.value <= offset < f.value + f.size}
    return sorted(names)


def code_bytes(cubin):
    """The bytes of instructions of each kernel, by its mangled name."""
    return {s.name[len(".text."):]: len(s.content) for s in sections(cubin) if s.name.startswith(".text.")}
