#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/weights/safetensors_corpus: files that the reader must accept, made by the format's own library, and
files that it must refuse, each listed in refused.tsv with a part of the complaint. Needs tools/requirements.txt.

Checks on the way that the format's own library refuses what is refused here, except what only our reader is strict
about (marked "ours").
"""

import json
import pathlib
import struct

import safetensors
import safetensors.torch
import torch

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "tests/weights/safetensors_corpus"


def file(header, data=b""):
    """A file of a header (a dict or the text itself) and data."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def one(fields, data=bytes(8)):
    """A file of one tensor 'a' whose description is given as JSON text."""
    return file(('{"a":' + fields + "}").encode(), data)


GOOD = '"dtype":"F32","shape":[2],"data_offsets":[0,8]'
OURS = "ours"

# name -> (bytes, part of the complaint[, OURS when the format's own library accepts the file])
REFUSED = {
    "no_bytes": (b"", "got 0 bytes"),
    "seven_bytes": (bytes(7), "got 7 bytes"),
    "length_past_the_end": (struct.pack("<Q", 3) + b"{}", "at most 2 bytes, got 3"),
    "length_of_all_ones": (b"\xff" * 8 + b"{}", "got 18446744073709551615"),
    "length_that_wraps": (struct.pack("<Q", 2**64 - 8) + b"{}", "got 18446744073709551608"),
    "header_empty": (file(b""), "an empty header"),
    "header_after_a_space": (file(b" {}"), "another first byte", OURS),
    "header_after_a_byte_order_mark": (file(b"\xef\xbb\xbf{}"), "another first byte"),
    "header_is_a_list": (file(b"[]"), "another first byte"),
    "header_cut": (file(b'{"a":{"dtype":'), "a syntax error"),
    "header_with_a_second_value": (file(b"{}{}"), "a syntax error at its byte 3"),
    "header_padded_with_zeros": (file(b"{}\0\0"), "got a zero byte"),
    "header_with_a_zero_and_more": (file(b'{}\0{"a":1}'), "got a zero byte"),
    "header_with_a_comment": (file(b"{/**/}"), "a syntax error"),
    "header_with_a_trailing_comma": (one("{" + GOOD + ",}"), "a syntax error"),
    "name_not_utf8": (file(b'{"\xff":{' + GOOD.encode() + b"}}", bytes(8)), "a syntax error"),
    "name_with_half_a_surrogate": (file(b'{"\\ud800":{' + GOOD.encode() + b"}}", bytes(8)), "a syntax error"),
    "nested_a_thousand_deep": (one('{"shape":' + "[" * 1000 + "]" * 1000 + "}"), "got a list"),
    "tensor_is_a_number": (one("1"), "tensor 'a': expected an object, got 1"),
    "tensor_is_a_negative_number": (one("-1"), "tensor 'a': expected an object, got -1"),
    "tensor_is_a_fraction": (one("1.5"), "tensor 'a': expected an object, got 1.5"),
    "tensor_is_null": (one("null"), "tensor 'a': expected an object, got null"),
    "tensor_is_a_boolean": (one("true"), "tensor 'a': expected an object, got a boolean"),
    "tensor_is_a_text": (one('"F32"'), "tensor 'a': expected an object, got a string"),
    "tensor_is_a_list": (one("[]"), "tensor 'a': expected an object, got a list"),
    "tensor_twice": (file(('{"a":{%s},"a":{%s}}' % (GOOD, GOOD)).encode(), bytes(8)), "every name once", OURS),
    "metadata_twice": (file(b'{"__metadata__":{},"__metadata__":{}}'), "every name once"),
    "metadata_key_twice": (file(b'{"__metadata__":{"k":"1","k":"2"}}'), "every key once", OURS),
    "metadata_is_a_list": (file(b'{"__metadata__":[]}'), "'__metadata__': expected an object, got a list"),
    "metadata_of_a_number": (file(b'{"__metadata__":{"k":1}}'), "field 'k': expected a string, got 1"),
    "metadata_nested": (file(b'{"__metadata__":{"k":{}}}'), "field 'k': expected a string, got an object"),
    "field_unknown": (one("{" + GOOD + ',"strides":[1]}'), "field 'strides'", OURS),
    "field_twice": (one("{" + GOOD + ',"shape":[2]}'), "field 'shape': expected every field once"),
    "dtype_twice": (one("{" + GOOD + ',"dtype":"F32"}'), "field 'dtype': expected every field once"),
    "dtype_missing": (one('{"shape":[2],"data_offsets":[0,8]}'), "got no dtype"),
    "shape_missing": (one('{"dtype":"F32","data_offsets":[0,8]}'), "got no shape"),
    "offsets_missing": (one('{"dtype":"F32","shape":[2]}'), "got no data_offsets"),
    "all_fields_missing": (one("{}"), "got no dtype"),
    "dtype_is_a_number": (one('{"dtype":32}'), "field 'dtype': expected a string, got 32"),
    "dtype_is_a_list": (one('{"dtype":["F32"]}'), "field 'dtype': expected a string, got a list"),
    "dtype_unknown": (file({"a": tensor([2], 0, 8, "F31")}, bytes(8)), "got 'F31'"),
    "dtype_in_small_letters": (file({"a": tensor([2], 0, 8, "f32")}, bytes(8)), "got 'f32'"),
    "shape_is_a_number": (one('{"shape":2}'), "field 'shape': expected a list, got 2"),
    "shape_is_null": (one('{"shape":null}'), "field 'shape': expected a list, got null"),
    "shape_nested": (one('{"shape":[[2]]}'), "got a list"),
    "shape_negative": (file({"a": tensor([-2], 0, 8)}, bytes(8)), "got -2"),
    "shape_minus_zero": (one('{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}', b""), "got 0"),
    "shape_fraction": (file({"a": tensor([2.0], 0, 8)}, bytes(8)), "got 2.0"),
    "shape_exponent": (one('{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}'), "got 2e0"),
    "shape_text": (file({"a": tensor(["2"], 0, 8)}, bytes(8)), "got a string"),
    "shape_past_int64": (file({"a": tensor([2**63], 0, 8)}, bytes(8)), "got 9223372036854775808"),
    "shape_past_uint64": (file({"a": tensor([2**64 + 2], 0, 8)}, bytes(8)), "got 18446744073709551618"),
    "shape_of_65_dimensions": (file({"a": tensor([1] * 65, 0, 4)}, bytes(4)), "more than 64", OURS),
    "elements_wrap_to_0": (file({"a": tensor([2**32, 2**32], 0, 0)}), "less than 2^63 bits"),
    "elements_wrap_to_2": (file({"a": tensor([2**62, 4, 2], 0, 8)}, bytes(8)), "less than 2^63 bits"),
    "bytes_wrap_to_0": (file({"a": tensor([2**62], 0, 0)}), "less than 2^63 bits"),
    "empty_but_overflowing": (file({"a": tensor([0, 2**62, 4], 0, 0)}), "less than 2^63 bits", OURS),
    "half_a_byte": (file({"a": tensor([3], 0, 1, "F4")}, bytes(1)), "a whole number of bytes"),
    "offsets_of_one": (one('{"dtype":"F32","shape":[2],"data_offsets":[8]}'), "got [8]"),
    "offsets_of_three": (one('{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}'), "got [0, 8, 8]"),
    "offsets_negative": (file({"a": tensor([2], -8, 0)}, bytes(8)), "got -8"),
    "offsets_reversed": (file({"a": tensor([2], 8, 0)}, bytes(8)), "got [8, 0]"),
    "offsets_past_the_data": (file({"a": tensor([2], 0, 8)}, bytes(7)), "<= 7 bytes of data, got [0, 8]"),
    "offsets_far_past_the_data": (file({"a": tensor([2], 2**62, 2**62 + 8)}, bytes(8)), "<= 8 bytes of data"),
    "offsets_past_int64": (file({"a": tensor([2], 2**64 - 8, 2**64 - 1)}, bytes(8)), "got 18446744073709551608"),
    "fewer_bytes_than_the_shape": (file({"a": tensor([3], 0, 8)}, bytes(8)), "expected 12 bytes of data for F32 [3], got 8"),
    "more_bytes_than_the_shape": (file({"a": tensor([1], 0, 8)}, bytes(8)), "expected 4 bytes of data for F32 [1], got 8"),
    "scalar_without_bytes": (file({"a": tensor([], 0, 0)}), "expected 4 bytes of data for F32 [], got 0"),
    "empty_with_bytes": (file({"a": tensor([0], 0, 4)}, bytes(4)), "expected 0 bytes of data for F32 [0], got 4"),
    "unread_type_of_wrong_size": (file({"a": tensor([2], 0, 8, "F64")}, bytes(8)), "expected 16 bytes of data for F64"),
    "two_overlap": (file({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)), "an overlap from byte 4"),
    "two_are_the_same": (file({"a": tensor([2], 0, 8), "b": tensor([2], 0, 8)}, bytes(8)), "an overlap from byte 0"),
    "empty_inside_another": (file({"a": tensor([2], 0, 8), "b": tensor([0], 4, 4)}, bytes(8)), "an overlap from byte 4"),
    "hole_at_the_start": (file({"a": tensor([1], 4, 8)}, bytes(8)), "a hole up to byte 4"),
    "hole_between": (file({"a": tensor([1], 0, 4), "b": tensor([1], 8, 12)}, bytes(12)), "where tensor 'a' ends, got a hole"),
    "bytes_after_the_last": (file({"a": tensor([1], 0, 4)}, bytes(5)), "4 bytes, as many as the tensors have, got 5"),
    "bytes_without_tensors": (file(b"{}", bytes(1)), "0 bytes, as many as the tensors have, got 1"),
}


ACCEPTED = {
    "made_by_python": safetensors.torch.save(
        {
            "f32": torch.tensor([[0.0, -0.5, 1.5], [3.0e38, 1e-45, -2.0]]),
            "f16": torch.tensor([1.0, -0.333251953125, 65504.0, 2.0**-24], dtype=torch.float16),
            "bf16": torch.tensor([1.0, -3.140625, 3.3895313892515355e38], dtype=torch.bfloat16),
            "i8": torch.tensor([-128, 0, 127], dtype=torch.int8),
            "i64": torch.tensor([-(2**63), 2**63 - 1]),
            "f64": torch.tensor([0.1], dtype=torch.float64),
            "bool": torch.tensor([True, False, True]),
            "scalar": torch.tensor(42.0),
            "empty": torch.empty(0, 7),
            'a "quoted" name, caf\u00e9\n\x01': torch.tensor([7.0]),
        },
        {"format": "pt"},
    ),
    "no_tensors": safetensors.torch.save({}),
    "unpadded_header_and_misaligned_data": file({"a": tensor([1], 0, 1, "I8"), "b": tensor([2], 1, 9)}, bytes(range(9))),
    "offsets_out_of_the_order_of_names": file({"a": tensor([1], 4, 8), "b": tensor([1], 0, 4)}, bytes(8)),
    "spaces_and_newlines": file(b'{ "a" :\n{"shape":[ 2 ],"data_offsets":[0,\t8],"dtype":"F32"} } \n ', bytes(8)),
    "packed_four_bit": file({"a": tensor([4], 0, 2, "F4")}, bytes(2)),
    "several_empty": file({"a": tensor([0], 0, 0), "b": tensor([2], 0, 8), "c": tensor([3, 0], 8, 8)}, bytes(8)),
}


def is_accepted_by_the_formats_library(content):
    try:
        safetensors.deserialize(content)
        return True
    except safetensors.SafetensorError:
        return False


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)
    for old in CORPUS.iterdir():
        old.unlink()
    complaints = []
    for name, (content, complaint, *ours) in REFUSED.items():
        if is_accepted_by_the_formats_library(content) != (ours == [OURS]):
            raise SystemExit(f"{name}: the format's library disagrees")
        (CORPUS / f"{name}.safetensors").write_bytes(content)
        complaints.append(f"{name}\t{complaint}\n")
    (CORPUS / "refused.tsv").write_text("".join(complaints))
    for name, content in ACCEPTED.items():
        if not is_accepted_by_the_formats_library(content):
            raise SystemExit(f"{name}: the format's library refuses it")
        (CORPUS / f"{name}.safetensors").write_bytes(content)


if __name__ == "__main__":
    main()
