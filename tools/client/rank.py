# SPDX-License-Identifier: Apache-2.0
"""Sends a request to a warprank server and shows the scores: python3 tools/client/rank.py [--url HOST:PORT]

The values are made up from the model's layout; a service of yours sends its own. Needs tritonclient[grpc].
"""
import argparse
import os

import numpy
import tritonclient.grpc
from warprank_client import Layout, UserClient, blob_inputs, is_user_kept, named_inputs


def made_up(layout, rows, seed):
    """A request with `rows` rows on each axis in the outermost, and one or two for each row below."""
    random = numpy.random.default_rng(seed)
    request, counts = {}, []
    for a, axis in enumerate(layout.axes):
        if a == 0:
            counts.append(1)
        elif axis["parent"] == 0:
            counts.append(rows)
        else:
            lengths = random.integers(1, 3, counts[axis["parent"]])
            request[axis["name"] + ".offsets"] = numpy.concatenate([[0], numpy.cumsum(lengths)])
            counts.append(int(lengths.sum()))
    for i in layout.ids:
        request[i["name"]] = random.integers(0, 7, counts[i["axis"]])
    for d in layout.dense:
        request[d["name"]] = random.uniform(0, 1, (counts[d["axis"]], d["width"])).astype(numpy.float32)
    return request


def show(result):
    for output in result.get_response().outputs:
        scores = result.as_numpy(output.name)
        print(f"{output.name} of version {result.get_response().model_version}: "
              f"{numpy.array2string(scores.ravel(), precision=4, max_line_width=100)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="localhost:8001")
    parser.add_argument("--model", default="din_mmoe")
    parser.add_argument("--rows", type=int, default=10, help="to rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--named", action="store_true", help="send named tensors instead of a blob")
    parser.add_argument("--user-state", help="of a user that a server with --keep-users keeps: asks for two pages")
    arguments = parser.parse_args()

    client = tritonclient.grpc.InferenceServerClient(arguments.url)
    token = os.environ.get("WARPRANK_TOKEN")
    headers = {"authorization": "Bearer " + token} if token else None
    if arguments.user_state is not None:
        users = UserClient(client, arguments.model, headers)
        for page in range(2):  # of which the second is scored by what the server has kept of the first one's user
            result = users.infer(made_up(users.layout, arguments.rows, arguments.seed + page), arguments.user_state)
            show(result)
            print(f"the user is {'kept' if is_user_kept(result) else 'not kept'}")
        return
    layout = Layout.of_server(client, arguments.model, headers)
    request = made_up(layout, arguments.rows, arguments.seed)
    inputs = named_inputs(layout, request) if arguments.named else blob_inputs([layout.pack(request)])
    show(client.infer(arguments.model, inputs, headers=headers))


if __name__ == "__main__":
    main()
