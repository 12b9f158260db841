# SPDX-License-Identifier: Apache-2.0
"""Requests for a warprank server, from NumPy arrays.

A request is a dict of arrays by input: ids [rows], dense values [rows, width], and "<axis>.offsets" [parent rows + 1]
for each axis that is nested in another than the outermost. The same dict is packed to a blob (docs/BATCH_FORMAT.md), the
smallest that can be sent, or sent as it is, as named tensors:

    client = tritonclient.grpc.InferenceServerClient("localhost:8001")
    layout = Layout.of_server(client, "din_mmoe")
    result = client.infer("din_mmoe", blob_inputs([layout.pack(request)]))
    result = client.infer("din_mmoe", named_inputs(layout, request))
    scores = result.as_numpy("ctr")

Of users who are asked about several times the server keeps what it computes, if it is told to (docs/SERVER.md):

    pages = UserClient(client, "din_mmoe")
    result = pages.infer(request, user_state="user 42")
"""
import collections
import json
import struct
import threading

import numpy

BLOBS = "request_blobs"
IDS_TYPES = {"i64": 0, "i32": 1}
DENSE_TYPES = {"f32": 0, "f16": 1, "bf16": 2}


def _padded(data):
    return data + bytes(-len(data) % 8)


def _bf16(values):
    bits = values.view(numpy.uint32)
    return ((bits + numpy.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype("<u2")


class Layout:
    """The axes and inputs of a model, as the server's configuration has them."""

    def __init__(self, description):
        self.axes, self.ids, self.dense = description["axes"], description["ids"], description["dense"]
        self.inputs = {**{i["name"]: i for i in self.ids}, **{d["name"]: d for d in self.dense}}
        self.offset_names = {axis["name"] + ".offsets": a for a, axis in enumerate(self.axes) if a > 0}
        self.fingerprint = self._fingerprint()

    @classmethod
    def of_server(cls, client, model_name, headers=None):
        """client: a tritonclient.grpc.InferenceServerClient."""
        config = client.get_model_config(model_name, headers=headers).config
        return cls(json.loads(config.parameters["layout"].string_value))

    @classmethod
    def of_later_requests(cls, client, model_name, headers=None):
        """The layout of requests about users whom the server knows; None where it keeps no states of users."""
        config = client.get_model_config(model_name, headers=headers).config
        if "later_layout" not in config.parameters:
            return None
        return cls(json.loads(config.parameters["later_layout"].string_value))

    def _fingerprint(self):
        def name(text):
            return struct.pack("<I", len(text.encode())) + text.encode()

        data = struct.pack("<IIII", 1, len(self.axes), len(self.ids), len(self.dense))
        for axis in self.axes:
            data += name(axis["name"]) + struct.pack("<iq", axis["parent"], axis.get("keep_last", 0))
        for i in self.ids:
            data += name(i["name"]) + struct.pack("<IBq", i["axis"], "default" in i, i.get("default", 0))
        for d in self.dense:
            data += name(d["name"]) + struct.pack("<IqBf", d["axis"], d["width"], "default" in d, d.get("default", 0))
        result = 0xCBF29CE484222325
        for byte in data:
            result = (result ^ byte) * 0x100000001B3 % 2**64
        return result

    def pack(self, request):
        """The blob of one request. Raises ValueError for what the server would refuse, too."""
        values, offsets = self._arrays(request)
        rows = self._rows(values, offsets)
        kept = self._keep_last(rows, offsets)
        types = bytes([IDS_TYPES[i.get("type", "i64")] for i in self.ids] +
                      [DENSE_TYPES[d.get("type", "f32")] for d in self.dense])
        if not any(types):
            types = b""
        counts = [len(k) for k in kept]
        position = 40 + 4 * (2 * len(self.axes) + len(self.ids) + len(self.dense)) + len(types)
        position += -position % 8
        positions, sections = [], []

        def add(data):
            nonlocal position
            positions.append(position)
            sections.append(_padded(data))
            position += len(sections[-1])

        for a, axis in enumerate(self.axes):
            if a == 0 or axis["parent"] == 0:
                positions.append(0)
            else:
                add(self._kept_offsets(a, kept, rows, offsets).astype("<u4").tobytes())
        for info, encode in [(i, self._encoded_ids) for i in self.ids] + [(d, self._encoded_dense) for d in self.dense]:
            if info["name"] in values:
                add(encode(info, values[info["name"]][kept[info["axis"]]]))
            elif counts[info["axis"]] > 0 and "default" not in info:
                raise ValueError(f"{info['name']}: expected values, since it has no default, got none")
            else:
                positions.append(0)
        if position >= 2**32:
            raise ValueError(f"request: expected less than 4 GiB, got {position} bytes")
        header = struct.pack("<8sIIQIIII", b"warprank", 2 if types else 1, position, self.fingerprint, len(self.axes),
                             len(self.ids), len(self.dense), 0)
        return _padded(header + struct.pack(f"<{len(counts) + len(positions)}I", *counts, *positions) +
                       types) + b"".join(sections)

    def part_of(self, request, part):
        """What a layout with some of the inputs has of a request of this one. Raises ValueError as pack does."""
        values, offsets = self._arrays(request)
        rows = self._rows(values, offsets)
        result = {name: values[name] for name in part.inputs if name in values}
        has_inputs = {i["axis"] for i in part.inputs.values()}
        for a in range(len(part.axes) - 1, 0, -1):
            if a in has_inputs:
                has_inputs.add(part.axes[a]["parent"])
                result[part.axes[a]["name"] + ".offsets"] = self._starts(a, rows, offsets)
        return result

    def _arrays(self, request):
        values, offsets = {}, {}
        for name, given in request.items():
            if name in self.offset_names:
                offsets[self.offset_names[name]] = array = numpy.asarray(given, numpy.int64)
                if array.ndim != 1 or len(array) == 0 or array[0] != 0 or (numpy.diff(array) < 0).any():
                    raise ValueError(f"{name}: expected offsets that begin with 0 and never decrease, got {given!r}")
                continue
            if name not in self.inputs:
                raise ValueError(f"{name}: expected an input of the model, one of {', '.join(self.inputs)}")
            width = self.inputs[name].get("width")
            if width is None:
                array = numpy.asarray(given)
                if array.size and array.dtype.kind not in "iu":
                    raise ValueError(f"{name}: expected ids, got {array.dtype}")
                if array.ndim != 1:
                    raise ValueError(f"{name}: expected the shape [rows], got {list(array.shape)}")
                values[name] = array.astype(numpy.int64)
            else:
                array = numpy.asarray(given, numpy.float32)
                if array.ndim == 1 and width == 1:
                    array = array[:, None]
                if array.ndim != 2 or array.shape[1] != width:
                    raise ValueError(f"{name}: expected the shape [rows, {width}], got {list(array.shape)}")
                if not numpy.isfinite(array).all():
                    raise ValueError(f"{name}: expected finite values, got others")
                values[name] = array
        return values, offsets

    def _rows(self, values, offsets):
        """Rows of each axis, before keep_last."""
        rows = []
        for a, axis in enumerate(self.axes):
            of_axis = {i["name"]: len(values[i["name"]]) for i in self.inputs.values()
                       if i["axis"] == a and i["name"] in values}
            parent_rows = rows[axis["parent"]] if a > 0 else None
            if a == 0:
                count = 1
            elif a in offsets:
                if len(offsets[a]) != parent_rows + 1:
                    raise ValueError(f"{axis['name']}.offsets: expected {parent_rows + 1} of them, got {len(offsets[a])}")
                count = int(offsets[a][-1])
            elif axis["parent"] == 0 or not any(of_axis.values()):
                count = next(iter(of_axis.values()), 0)
            else:
                raise ValueError(f"{axis['name']}.offsets: expected where the rows of each "
                                 f"{self.axes[axis['parent']]['name']} begin, got none")
            for name, got in of_axis.items():
                if got != count:
                    raise ValueError(f"{name}: expected {count} rows, got {got}")
            if count > 0 and a > 0 and not of_axis and not any(other["parent"] == a for other in self.axes):
                raise ValueError(f"{axis['name']}.offsets: expected an input that is set on the axis, got none")
            rows.append(count)
        return rows

    def _starts(self, a, rows, offsets):
        """[parent rows + 1]: where the rows of each parent row begin."""
        if a in offsets:
            return offsets[a]
        starts = numpy.zeros(rows[self.axes[a]["parent"]] + 1, numpy.int64)
        starts[-1] = rows[a]  # of the outermost axis' one row, or no rows at all
        return starts

    def _keep_last(self, rows, offsets):
        """Of each axis the numbers of the rows that are sent."""
        kept = [numpy.arange(1)]
        for a, axis in enumerate(self.axes[1:], 1):
            starts = self._starts(a, rows, offsets)
            begin, end = starts[:-1][kept[axis["parent"]]], starts[1:][kept[axis["parent"]]]
            if axis.get("keep_last", 0) > 0:
                begin = numpy.maximum(begin, end - axis["keep_last"])
            if (begin[1:] == end[:-1]).all():
                kept.append(numpy.arange(begin[0], end[-1]) if len(begin) else numpy.arange(0))
            else:
                kept.append(numpy.concatenate([numpy.arange(b, e) for b, e in zip(begin, end)]))
        return kept

    def _kept_offsets(self, a, kept, rows, offsets):
        axis = self.axes[a]
        lengths = numpy.diff(self._starts(a, rows, offsets))[kept[axis["parent"]]]
        if axis.get("keep_last", 0) > 0:
            lengths = numpy.minimum(lengths, axis["keep_last"])
        return numpy.concatenate([[0], numpy.cumsum(lengths)])

    @staticmethod
    def _encoded_ids(info, ids):
        if info.get("type", "i64") == "i64":
            return ids.astype("<i8").tobytes()
        limits = numpy.iinfo(numpy.int32)
        narrow = numpy.clip(ids, limits.min, limits.max)
        if not info.get("saturate") and (narrow != ids).any():
            raise ValueError(f"{info['name']}: expected ids of 32 bits, got {ids[narrow != ids][0]}")
        return narrow.astype("<i4").tobytes()

    @staticmethod
    def _encoded_dense(info, values):
        kind = info.get("type", "f32")
        if kind == "f32":
            return values.astype("<f4").tobytes()
        if kind == "f16":
            with numpy.errstate(over="ignore"):
                narrow = values.astype("<f2")
            is_out, largest = numpy.isinf(narrow), numpy.float16(65504)
        else:
            narrow = _bf16(numpy.ascontiguousarray(values))
            is_out, largest = narrow & 0x7F80 == 0x7F80, numpy.uint16(0x7F7F)
        if is_out.any():
            if not info.get("saturate"):
                raise ValueError(f"{info['name']}: expected values that {kind} can hold, got {values[is_out][0]}")
            if kind == "f16":
                narrow = numpy.where(is_out, numpy.copysign(largest, narrow), narrow).astype("<f2")
            else:
                narrow = numpy.where(is_out, narrow & 0x8000 | largest, narrow).astype("<u2")
        return narrow.tobytes()


def blob_inputs(blobs):
    """What tritonclient's infer takes for requests that were packed."""
    from tritonclient.grpc import InferInput

    array = numpy.empty(len(blobs), object)
    array[:] = blobs
    tensor = InferInput(BLOBS, [len(blobs)], "BYTES")
    tensor.set_data_from_numpy(array)
    return [tensor]


def named_inputs(layout, request):
    """What tritonclient's infer takes for a dict of arrays, of one request or of many: docs/SERVER.md."""
    from tritonclient.grpc import InferInput

    tensors = []
    for name, given in request.items():
        is_dense = "width" in layout.inputs.get(name, {})
        array = numpy.asarray(given, numpy.float32 if is_dense else numpy.int64)
        tensor = InferInput(name, list(array.shape), "FP32" if is_dense else "INT64")
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return tensors


class UserClient:
    """Asks about users of whom the server keeps what it computes. Any threads at once, as far as `client` allows.

    It sends a whole request about a user once, and then the items' side alone, until the server has forgotten the user.
    """

    def __init__(self, client, model_name, headers=None, most_users=100_000):
        """client: a tritonclient.grpc.InferenceServerClient; most_users: so many are remembered, the last ones."""
        self.client, self.model_name, self.headers, self.most_users = client, model_name, headers, most_users
        self.layout = Layout.of_server(client, model_name, headers)
        self.later_layout = Layout.of_later_requests(client, model_name, headers)
        self._known = collections.OrderedDict()
        self._lock = threading.Lock()

    def infer(self, request, user_state, **options):
        """Scores a whole request, a dict of arrays, about the user who is called `user_state`, a text or an integer.
        `options` are those of the client's infer. Raises what that raises, and ValueError as Layout.pack does."""
        from tritonclient.utils import InferenceServerException

        parameters = {**options.pop("parameters", {}), "user_state": user_state}
        options = {"headers": self.headers, "parameters": parameters, **options}
        result = None
        if self.later_layout is not None and self._is_known(str(user_state)):
            part = self.later_layout.pack(self.layout.part_of(request, self.later_layout))
            try:
                result = self.client.infer(self.model_name, blob_inputs([part]), **options)
            except InferenceServerException as error:
                if error.status() != "StatusCode.FAILED_PRECONDITION":
                    raise
        if result is None:
            result = self.client.infer(self.model_name, blob_inputs([self.layout.pack(request)]), **options)
        self._remember(str(user_state), is_user_kept(result))
        return result

    def _is_known(self, user):
        with self._lock:
            return user in self._known

    def _remember(self, user, is_kept):
        with self._lock:
            self._known.pop(user, None)
            if is_kept:
                self._known[user] = True
            while len(self._known) > self.most_users:
                self._known.popitem(last=False)


def is_user_kept(result):
    """Whether the server keeps states of the user of a call, by the result that tritonclient gives."""
    parameters = result.get_response().parameters
    return "user_state" in parameters and parameters["user_state"].string_param == "kept"
