# SPDX-License-Identifier: Apache-2.0
"""Asks the server for the scores of the requests that train.py wrote, and compares them with PyTorch's: check.py FOLDER"""
import os
import sys

import numpy
import tritonclient.grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/client"))
from warprank_client import Layout, blob_inputs  # noqa: E402: behind the path


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check.py FOLDER")
    expected = numpy.load(os.path.join(sys.argv[1], "expected.npz"))
    client = tritonclient.grpc.InferenceServerClient("localhost:8001")
    layout = Layout.of_server(client, "watch")
    largest = 0.0
    for r, scores in enumerate(expected["scores"]):
        request = {"video_id": expected["video_id"][r], "watched_id": expected["watched_id"][r],
                   "region": expected["region"][r : r + 1], "hour": expected["hour"][r : r + 1]}
        result = client.infer("watch", blob_inputs([layout.pack(request)])).as_numpy("watch")
        largest = max(largest, float(numpy.abs(result.ravel() - scores).max()))
    print(f"{expected['scores'].size} scores; the largest difference from PyTorch is {largest:.1e}")
    if not largest < 1e-5:
        sys.exit("expected less than 1e-5")


if __name__ == "__main__":
    main()
