# SPDX-License-Identifier: Apache-2.0
"""Arrays in a card's memory, as other libraries share them by DLPack."""

import ctypes

import numpy as np

CUDA = 2
_CODES = {"i": 0, "u": 1, "f": 2}


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
ctypes.pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class OnCard:
    """An array of this shape and type at an address of a card's memory."""

    def __init__(self, address, shape, dtype, device=0):
        self.address, self.shape, self.dtype, self.device = address, tuple(shape), np.dtype(dtype), device
        self.asked = []  # streams

    @property
    def ndim(self):
        return len(self.shape)

    def __len__(self):
        return self.shape[0]

    def reshape(self, shape):
        shape = np.empty(self.shape, np.int8).reshape(shape).shape
        other = OnCard(self.address, shape, self.dtype, self.device)
        other.asked = self.asked
        return other

    def __dlpack_device__(self):
        return (CUDA, self.device)

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        self._dims = (ctypes.c_int64 * len(self.shape))(*self.shape)
        self._managed = _Managed(_Tensor(self.address, CUDA, self.device, len(self.shape), _CODES[self.dtype.kind],
                                         8 * self.dtype.itemsize, 1, self._dims, None, 0), None, None)
        _kept.append(self)  # nobody tells when the array is used no more
        return ctypes.pythonapi.PyCapsule_New(ctypes.addressof(self._managed), b"dltensor", None)


_kept = []


def _runtime():
    """CUDA's runtime: that of the process, or one that is found as a library."""
    for name in (None, "libcudart.so.13", "libcudart.so.12"):
        try:
            library = ctypes.CDLL(name)
            library.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
            library.cudaMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
            return library
        except (OSError, AttributeError):
            continue
    return None


def has_card():
    runtime, count = _runtime(), ctypes.c_int(0)
    return runtime is not None and runtime.cudaGetDeviceCount(ctypes.byref(count)) == 0 and count.value > 0


def _copy(to, of, size):
    from_any_to_any = 4
    assert _runtime().cudaMemcpy(to, of, size, from_any_to_any) == 0


def on_card(array):
    array = np.ascontiguousarray(array)
    address = ctypes.c_void_p()
    assert _runtime().cudaMalloc(ctypes.byref(address), max(array.nbytes, 256)) == 0
    _copy(address, array.ctypes.data, array.nbytes)
    return OnCard(address.value, array.shape, array.dtype)


def read(array):
    """What DLPack shares, float32, as a NumPy array."""
    capsule = array.__dlpack__()
    tensor = _Managed.from_address(ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor")).tensor
    values = np.empty(tuple(tensor.shape[:tensor.ndim]), np.float32)
    _copy(values.ctypes.data, tensor.data, values.nbytes)
    return values
