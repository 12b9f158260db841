# SPDX-License-Identifier: Apache-2.0
"""The server and tools/client with Triton's own client: server_client_test.py SERVER VECTORS PROTO VENV

Exits with 77, and says why, where tritonclient is neither there nor to be installed into the folder VENV.
"""
import atexit
import http.client
import itertools
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "examples/movielens/weights"
sys.path.insert(0, str(ROOT / "tools/client"))
SKIPPED = 77
PACKAGES = ["tritonclient[grpc,http]==2.73.0", "numpy<3"]


def with_packages(venv):
    """Goes on under a Python that has the packages, or exits."""
    python = venv / "bin/python"
    ready, wanted = venv / "ready", "\n".join(PACKAGES)
    if not ready.exists() or ready.read_text() != wanted:
        for command in ([sys.executable, "-m", "venv", venv],
                        [python, "-m", "pip", "install", "-q", "--retries", "1", "--timeout", "10", *PACKAGES]):
            try:
                done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=240)
            except subprocess.TimeoutExpired:
                print(f"skipped: {' '.join(map(str, command))} took more than 240 s")
                sys.exit(SKIPPED)
            if done.returncode != 0:
                print(f"skipped: {' '.join(map(str, command))} failed:\n{done.stderr[-1000:]}")
                sys.exit(SKIPPED)
        ready.write_text(wanted)
    os.execv(python, [str(python), *sys.argv, "--in-venv"])


class RunningServer:
    """The server of the MovieLens model, and a client of it."""

    def __init__(self, *options):
        import tritonclient.grpc

        command = [SERVER, "--address", "127.0.0.1:0", "--http-port", "0", "--weights", str(WEIGHTS), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # where a test fails; who waits for this program's output waits for it, too
        line = self.process.stdout.readline()
        event = json.loads(line)
        assert event["event"] == "start" and event["engine"] == "host" and event["model"] == "din_mmoe", line
        self.port, self.http_port, self.bound = event["grpc_port"], event["http_port"], event["bound"]
        self.client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.port}")

    def http_client(self):
        import tritonclient.http

        return tritonclient.http.InferenceServerClient(f"127.0.0.1:{self.http_port}")

    def load(self, mode):
        """Exchanges the model, which Triton's client has no modes for. It does so in time that nobody else wants, and so
        takes half a minute where compilers run beside it: only a server that hangs meets the limit."""
        import grpc
        from tritonclient.grpc import service_pb2, service_pb2_grpc

        request = service_pb2.RepositoryModelLoadRequest(model_name="din_mmoe")
        request.parameters["swap_mode"].string_param = mode
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).RepositoryModelLoad(request, timeout=900)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def stop(self):
        """The events that it has told of behind the first, by kind; of a kind the last."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        text, _ = self.process.communicate(timeout=60)
        return {event["event"]: event for event in map(json.loads, text.splitlines())}


class BlobsTest(unittest.TestCase):
    def test_packs_what_the_library_packs(self):
        from warprank_client import Layout

        lines = subprocess.run([VECTORS], capture_output=True, text=True, check=True).stdout.splitlines()
        num_packed = 0
        for line in lines:
            vector = json.loads(line)
            layout = Layout(vector["layout"])
            if vector["status"]:
                with self.assertRaises(ValueError, msg=vector["status"]):
                    layout.pack(vector["request"])
                continue
            self.assertEqual(layout.pack(vector["request"]).hex(), vector["blob"], vector["request"])
            later = Layout(vector["later_layout"])
            part = layout.part_of(vector["request"], later)
            self.assertEqual(later.pack(part).hex(), vector["later_blob"], vector["request"])
            self.assertLess(len(vector["later_blob"]), len(vector["blob"]))
            num_packed += 1
        self.assertGreater(num_packed, 100)

    def test_says_what_is_wrong(self):
        from warprank_client import Layout

        layout = Layout({"axes": [{"name": "user", "parent": -1}, {"name": "item", "parent": 0},
                                  {"name": "genres", "parent": 1}],
                         "ids": [{"name": "film", "axis": 1, "type": "i32"}, {"name": "genre", "axis": 2}],
                         "dense": [{"name": "x", "axis": 1, "width": 2, "type": "f16"}]})
        good = {"film": [1, 2], "genre": [1], "genres.offsets": [0, 0, 1], "x": [[1, 2], [3, 4]]}
        layout.pack(good)
        for change, message in [({"films": [1]}, "films: expected an input of the model"),
                                ({"film": [1.5, 2]}, "film: expected ids, got float64"),
                                ({"film": [[1, 2]]}, r"film: expected the shape \[rows\], got \[1, 2\]"),
                                ({"film": [1, 2**31]}, "film: expected ids of 32 bits, got 2147483648"),
                                ({"film": [1]}, "x: expected 1 rows, got 2"),
                                ({"x": [[1, 2, 3]]}, r"x: expected the shape \[rows, 2\], got \[1, 3\]"),
                                ({"x": [[1, 2], [3, 1e5]]}, "x: expected values that f16 can hold, got 100000.0"),
                                ({"x": [[1, 2], [3, float("nan")]]}, "x: expected finite values"),
                                ({"genres.offsets": [0, 1]}, "genres.offsets: expected 3 of them, got 2"),
                                ({"genres.offsets": [0, 2, 1]}, "genres.offsets: expected offsets that begin with 0"),
                                ({"genres.offsets": [1, 1, 1]}, "genres.offsets: expected offsets that begin with 0")]:
            with self.assertRaisesRegex(ValueError, message):
                layout.pack({**good, **change})
        for missing, message in [("x", "x: expected values, since it has no default"),
                                 ("genres.offsets", "genres.offsets: expected where the rows of each item begin")]:
            with self.assertRaisesRegex(ValueError, message):
                layout.pack({name: value for name, value in good.items() if name != missing})


class ProtocolTest(unittest.TestCase):
    def test_has_the_names_and_numbers_of_tritons_clients(self):
        from google.protobuf import descriptor_pb2
        from tritonclient.grpc import model_config_pb2, service_pb2

        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "set"
            subprocess.run(["protoc", "-I", str(pathlib.Path(PROTO).parent), f"--descriptor_set_out={out}", PROTO],
                           check=True)
            ours = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
        theirs = {}
        for module in (service_pb2, model_config_pb2):
            file = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            theirs.update({message.name: message for message in file.message_type})
            theirs.update({enum.name: enum for enum in file.enum_type})
            theirs.update({service.name: service for service in file.service})

        num_fields = 0

        def compare(our, their):
            nonlocal num_fields
            fields = {field.name: field for field in their.field}
            for field in our.field:
                other = fields[field.name]
                for what in ("number", "type", "label", "type_name"):
                    self.assertEqual(getattr(field, what), getattr(other, what), f"{our.name}.{field.name}: {what}")
                num_fields += 1
            nested = {message.name: message for message in their.nested_type}
            for message in our.nested_type:
                compare(message, nested[message.name])

        for message in ours.message_type:
            compare(message, theirs[message.name])
        for enum in ours.enum_type:
            self.assertEqual(list(enum.value), list(theirs[enum.name].value))
        methods = {method.name: method for method in theirs["GRPCInferenceService"].method}
        for method in ours.service[0].method:
            self.assertEqual(method.SerializeToString(deterministic=True).replace(b"\x22\x00", b""),
                             methods[method.name].SerializeToString(deterministic=True).replace(b"\x22\x00", b""))
        self.assertGreater(num_fields, 100)


class ServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer()
        cls.client = cls.server.client

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_is_what_triton_clients_expect(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("din_mmoe"))
        self.assertEqual(self.client.get_server_metadata().name, "warprank")
        metadata = self.client.get_model_metadata("din_mmoe")
        self.assertEqual([output.name for output in metadata.outputs], ["ctr", "ctcvr"])
        self.assertEqual(self.client.get_model_repository_index().models[0].state, "READY")

    def test_gives_blobs_and_named_tensors_the_same_scores(self):
        import numpy
        from rank import made_up
        from warprank_client import Layout, blob_inputs, named_inputs

        layout = Layout.of_server(self.client, "din_mmoe")
        requests = [made_up(layout, rows, seed=rows) for rows in (1, 7, 200)]
        alone = []
        for request in requests:
            result = self.client.infer("din_mmoe", named_inputs(layout, request))
            alone.append(result.as_numpy("ctr"))
        self.assertEqual([scores.shape for scores in alone], [(1, 1), (7, 1), (200, 1)])
        result = self.client.infer("din_mmoe", blob_inputs([layout.pack(request) for request in requests]))
        numpy.testing.assert_array_equal(result.as_numpy("ctr"), numpy.concatenate(alone))
        numpy.testing.assert_array_equal(result.as_numpy("item.offsets"), [0, 1, 8, 208])
        numpy.testing.assert_array_less(0, alone[2])
        numpy.testing.assert_array_less(alone[2], 1)

    def test_scores_in_the_precision_that_is_asked_for_after_an_exchange_too(self):
        import numpy
        from rank import made_up
        from warprank_client import Layout, named_inputs

        self.assertIn("precision fp32, as asked for", self.server.bound)
        layout = Layout.of_server(self.client, "din_mmoe")
        inputs = named_inputs(layout, made_up(layout, 100, seed=1))
        in_fp32 = self.client.infer("din_mmoe", inputs).as_numpy("ctr")
        server = RunningServer("--precision", "automatic")
        try:
            self.assertIn("automatically", server.bound)
            scores = server.client.infer("din_mmoe", inputs).as_numpy("ctr")
            self.assertEqual((scores != in_fp32).any(), "precision bf16" in server.bound)
            numpy.testing.assert_allclose(scores, in_fp32, rtol=0, atol=0.02)
            server.load("full")
            numpy.testing.assert_array_equal(server.client.infer("din_mmoe", inputs).as_numpy("ctr"), scores)
        finally:
            server.stop()

    def test_answers_by_http_as_by_grpc(self):
        import numpy
        import tritonclient.http
        from rank import made_up
        from tritonclient.utils import InferenceServerException
        from warprank_client import BLOBS, Layout, named_inputs

        client = self.server.http_client()
        self.assertTrue(client.is_server_live() and client.is_server_ready() and client.is_model_ready("din_mmoe"))
        self.assertEqual(client.get_server_metadata()["name"], "warprank")
        self.assertEqual([o["name"] for o in client.get_model_metadata("din_mmoe")["outputs"]], ["ctr", "ctcvr"])
        self.assertEqual(client.get_model_repository_index()[0]["state"], "READY")
        self.assertEqual(client.get_system_shared_memory_status(), [])
        self.assertEqual(client.get_cuda_shared_memory_status(), [])
        client.unregister_system_shared_memory()
        client.unregister_cuda_shared_memory()
        layout = Layout(json.loads(client.get_model_config("din_mmoe")["parameters"]["layout"]["string_value"]))
        request = made_up(layout, 50, seed=7)
        expected = self.client.infer("din_mmoe", named_inputs(layout, request))

        def same(inputs, **options):
            result = client.infer("din_mmoe", inputs, **options)
            for name in ("ctr", "ctcvr"):
                numpy.testing.assert_array_equal(result.as_numpy(name), expected.as_numpy(name))

        for is_binary in (False, True):
            inputs = []
            for name, array in request.items():
                inputs.append(tritonclient.http.InferInput(name, list(array.shape),
                                                           "FP32" if array.dtype == numpy.float32 else "INT64"))
                inputs[-1].set_data_from_numpy(array, binary_data=is_binary)
            same(inputs)
            for binary_output in (False, True):
                same(inputs, outputs=[tritonclient.http.InferRequestedOutput(name, binary_data=binary_output)
                                      for name in ("ctr", "ctcvr")])
        blob = tritonclient.http.InferInput(BLOBS, [1], "BYTES")
        blob.set_data_from_numpy(numpy.array([layout.pack(request)], dtype=object))
        same([blob])
        with self.assertRaisesRegex(InferenceServerException, "Content-Encoding: expected none, got 'gzip'"):
            client.infer("din_mmoe", [blob], request_compression_algorithm="gzip")
        same([blob], response_compression_algorithm="gzip")
        with self.assertRaisesRegex(InferenceServerException, "expected 'din_mmoe', got 'dlrm'"):
            client.infer("dlrm", [blob])
        version = client.get_model_metadata("din_mmoe")["versions"][0]
        client.load_model("din_mmoe")
        self.assertEqual(client.get_model_metadata("din_mmoe")["versions"], [str(int(version) + 1)])
        statistics = client.get_inference_statistics("din_mmoe")["model_stats"][0]
        self.assertGreater(statistics["inference_stats"]["success"]["count"], 8)
        client.close()

    def test_the_cpp_client_gets_the_same_scores(self):
        import numpy
        from rank import made_up
        from warprank_client import Layout, named_inputs

        layout = Layout.of_server(self.client, "din_mmoe")
        requests = [made_up(layout, rows, seed=rows) for rows in (1, 20, 3)]

        def rank(model, requests):
            text = "".join(json.dumps({name: a.tolist() for name, a in request.items()}) + "\n" for request in requests)
            return subprocess.run([pathlib.Path(SERVER).with_name("rank_client"), "--model", model, "--url",
                                   f"127.0.0.1:{self.server.port}"], input=text, capture_output=True, text=True)

        done = rank("din_mmoe", requests)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(lines), len(requests))
        for request, line in zip(requests, lines):
            result = self.client.infer("din_mmoe", named_inputs(layout, request))
            for output in ("ctr", "ctcvr"):
                numpy.testing.assert_allclose(line[output], result.as_numpy(output).ravel(), rtol=1e-5)
        for model, wrong, message in [("dlrm", requests[0], "expected 'din_mmoe', got 'dlrm'"),
                                      ("din_mmoe", {"film_ids": numpy.array([1])}, "did you mean 'film_id'"),
                                      ("din_mmoe", {"film_id": numpy.array([1])}, "request 0: expected a request of")]:
            done = rank(model, [wrong])
            self.assertEqual(done.returncode, 1)
            self.assertIn(message, done.stderr)

    def test_streams(self):
        import queue

        from rank import made_up
        from warprank_client import Layout, blob_inputs

        layout = Layout.of_server(self.client, "din_mmoe")
        answers = queue.Queue()
        self.client.start_stream(lambda result, error: answers.put((result, error)))
        for seed in range(20):
            inputs = blob_inputs([layout.pack(made_up(layout, 5, seed))])
            self.client.async_stream_infer("din_mmoe", inputs, request_id=str(seed))
        got = [answers.get(timeout=60) for _ in range(20)]
        self.client.stop_stream()
        self.assertEqual([error for _, error in got], [None] * 20)
        self.assertEqual(sorted(int(result.get_response().id) for result, _ in got), list(range(20)))

    def test_tells_what_is_wrong_and_counts_it(self):
        import numpy
        import tritonclient.grpc
        from tritonclient.utils import InferenceServerException

        tensor = tritonclient.grpc.InferInput("film_ids", [1], "INT64")
        tensor.set_data_from_numpy(numpy.array([1]))
        with self.assertRaisesRegex(InferenceServerException, "did you mean 'film_id'"):
            self.client.infer("din_mmoe", [tensor])
        with self.assertRaisesRegex(InferenceServerException, "expected 'din_mmoe', got 'dlrm'"):
            self.client.infer("dlrm", [tensor])

    def test_exchanges_the_model(self):
        before = int(self.client.get_model_metadata("din_mmoe").versions[0])
        self.client.load_model("din_mmoe")
        self.assertEqual(self.client.get_model_metadata("din_mmoe").versions, [str(before + 1)])
        self.assertRegex(self.server.get("/metrics")[1], r'warprank_swaps_total{model="din_mmoe",result="done"} [12]\n')

    def test_counts_ids_that_have_no_row(self):
        from rank import made_up
        from warprank_client import Layout, named_inputs

        def count(metric):
            found = re.findall(rf'(?m)^{metric}{{model="din_mmoe",feature="([^"]+)"}} (\d+)$',
                               self.server.get("/metrics")[1])
            self.assertGreater(len(found), 5)
            return {feature: int(ids) for feature, ids in found}

        layout = Layout.of_server(self.client, "din_mmoe")
        request = made_up(layout, 20, 1)
        before, unknown_before = count("warprank_ids_total"), count("warprank_unknown_ids_total")
        self.client.infer("din_mmoe", named_inputs(layout, {**request, "year": request["year"] + 1000}))
        after, unknown = count("warprank_ids_total"), count("warprank_unknown_ids_total")
        self.assertEqual(after["embed.year"] - before["embed.year"], 20)
        self.assertEqual(unknown["embed.year"] - unknown_before["embed.year"], 20)
        self.assertEqual(unknown["embed.age"], unknown_before["embed.age"])

    def test_has_every_metric_of_the_dashboard(self):
        expressions = re.findall(r'"(?:expr|query)": "(.*)"', (ROOT / "examples/server/dashboard.json").read_text())
        metrics = self.server.get("/metrics")[1]
        names = set(re.findall(r"\bwarprank_\w+", " ".join(expressions)))
        of_tiers, of_users = (set(re.findall(r'"(warprank_\w+)"', (ROOT / "examples/server" / file).read_text()))
                              for file in ("tier_metrics.hpp", "user_metrics.hpp"))
        self.assertGreater(len(names - of_tiers - of_users), 10)
        for name in names - of_tiers - of_users:  # no table of this model has several tiers, and no users are kept
            self.assertRegex(metrics, rf"(?m)^{name}\{{")
        server = RunningServer("--keep-users", "item")
        try:
            metrics = server.get("/metrics")[1]
        finally:
            server.stop()
        self.assertGreater(len(of_users & names), 3)
        for name in of_users:
            self.assertRegex(metrics, rf"(?m)^{name}\{{")

    def test_is_healthy_until_it_is_unloaded(self):
        self.assertEqual(self.server.get("/healthz"), (200, "ready\n"))
        self.client.unload_model("din_mmoe")
        self.assertEqual(self.server.get("/healthz"), (503, "not ready\n"))
        self.client.load_model("din_mmoe")
        self.assertEqual(self.server.get("/healthz"), (200, "ready\n"))
        self.assertEqual(self.server.get("/")[0], 404)


class UsersTest(unittest.TestCase):
    """A server that keeps states of users, and one that does not."""

    def setUp(self):
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            server.stop()

    def run_server(self, *options):
        self.servers.append(RunningServer(*options))
        return self.servers[-1]

    @staticmethod
    def pages(layout, later_layout, user, num_pages):
        """Requests about one user, whose user's side is the same."""
        from rank import made_up

        of_user = made_up(layout, 5, seed=1000 + user)
        items = {*later_layout.inputs, "genres.offsets"}
        return [{**of_user, **{name: array for name, array in made_up(layout, 5, seed=page).items() if name in items}}
                for page in range(num_pages)]

    @staticmethod
    def metric(server, name, labels=""):
        found = re.search(rf'(?m)^warprank_{name}{{model="din_mmoe"{labels}}} (\d+)$', server.get("/metrics")[1])
        return int(found[1])

    def test_scores_by_what_the_server_keeps(self):
        import numpy
        from tritonclient.utils import InferenceServerException
        from warprank_client import Layout, UserClient, blob_inputs, is_user_kept, named_inputs

        divided, plain = self.run_server("--keep-users", "item"), self.run_server()
        users = UserClient(divided.client, "din_mmoe")
        self.assertIsNone(Layout.of_later_requests(plain.client, "din_mmoe"))
        pages = {user: self.pages(users.layout, users.later_layout, user, 3) for user in range(4)}

        def expect_as_whole(user, page):
            result = users.infer(pages[user][page], user_state=user)
            expected = plain.client.infer("din_mmoe", blob_inputs([users.layout.pack(pages[user][page])]))
            for output in ("ctr", "ctcvr"):
                numpy.testing.assert_array_equal(result.as_numpy(output), expected.as_numpy(output))
            self.assertTrue(is_user_kept(result))

        def expect_counts(known, unknown):
            self.assertEqual(self.metric(divided, "user_requests_total", ',user="known"'), known)
            self.assertEqual(self.metric(divided, "refused_total", ',reason="unknown_user"'), unknown)

        for page in range(3):
            for user in range(4):
                expect_as_whole(user, page)
        expect_counts(known=8, unknown=0)
        divided.load("full")
        plain.load("full")
        for page in range(2):
            for user in range(4):
                expect_as_whole(user, page)
        expect_counts(known=12, unknown=4)

        # By named tensors, too, which the caller chooses: as text or number, a user is the same.
        later = named_inputs(users.layout, users.layout.part_of(pages[1][2], users.later_layout))
        result = divided.client.infer("din_mmoe", later, parameters={"user_state": "1"})
        expected = plain.client.infer("din_mmoe", named_inputs(users.layout, pages[1][2]))
        numpy.testing.assert_array_equal(result.as_numpy("ctr"), expected.as_numpy("ctr"))
        with self.assertRaisesRegex(InferenceServerException, "FAILED_PRECONDITION.*nothing is known of its user"):
            divided.client.infer("din_mmoe", later, parameters={"user_state": "nobody"})
        with self.assertRaisesRegex(InferenceServerException, "INVALID_ARGUMENT.*--keep-users"):
            UserClient(plain.client, "din_mmoe").infer(pages[1][2], user_state=1)
        with self.assertRaisesRegex(InferenceServerException, "INVALID_ARGUMENT.*an empty text"):
            users.infer(pages[1][2], user_state="")
        with self.assertRaisesRegex(ValueError, "films: expected an input"):
            users.infer({"films": [1]}, user_state=1)

    def test_goes_on_where_states_are_evicted(self):
        import numpy
        from warprank_client import UserClient, blob_inputs

        divided = self.run_server("--keep-users", "item", "--user-bytes", "5000")
        users = UserClient(divided.client, "din_mmoe")
        pages = {user: self.pages(users.layout, users.later_layout, user, 3) for user in range(12)}
        for page in range(3):
            for user in range(12):
                result = users.infer(pages[user][page], user_state=f"user {user}")
                expected = divided.client.infer("din_mmoe", blob_inputs([users.layout.pack(pages[user][page])]))
                numpy.testing.assert_array_equal(result.as_numpy("ctr"), expected.as_numpy("ctr"))
        self.assertGreater(self.metric(divided, "user_changes_total", ',change="evicted"'), 0)
        self.assertGreater(self.metric(divided, "refused_total", ',reason="unknown_user"'), 0)
        self.assertLessEqual(self.metric(divided, "user_state_bytes"), 5000)

    def test_remembers_the_users_that_were_asked_for_last(self):
        from warprank_client import UserClient

        divided = self.run_server("--keep-users", "item")
        users = UserClient(divided.client, "din_mmoe", most_users=2)
        page = self.pages(users.layout, users.later_layout, 1, 1)[0]
        for user in ("a", "b", "a", "c"):  # c takes the place of b
            users.infer(page, user_state=user)
        divided.load("full")
        users.infer(page, user_state="a")
        self.assertEqual(self.metric(divided, "refused_total", ',reason="unknown_user"'), 1)
        users.infer(page, user_state="b")  # whole at once
        self.assertEqual(self.metric(divided, "refused_total", ',reason="unknown_user"'), 1)

    def test_sends_whole_requests_of_users_that_are_not_kept(self):
        from warprank_client import UserClient, is_user_kept

        divided = self.run_server("--keep-users", "item", "--user-bytes", "1024")  # less than a state
        users = UserClient(divided.client, "din_mmoe")
        for page in self.pages(users.layout, users.later_layout, 1, 3):
            self.assertFalse(is_user_kept(users.infer(page, user_state="user")))
        self.assertEqual(self.metric(divided, "user_changes_total", ',change="refused"'), 3)
        self.assertEqual(self.metric(divided, "refused_total", ',reason="unknown_user"'), 0)

    def test_passes_on_what_is_not_an_unknown_user(self):
        from tritonclient.utils import InferenceServerException
        from warprank_client import UserClient

        users = UserClient(self.run_server("--keep-users", "item").client, "din_mmoe")
        page = self.pages(users.layout, users.later_layout, 1, 1)[0]
        users.infer(page, user_state="user")
        calls = []

        class Away:
            def infer(self, *arguments, **options):
                calls.append(arguments)
                raise InferenceServerException("away", status="StatusCode.UNAVAILABLE")

        users.client = Away()
        with self.assertRaisesRegex(InferenceServerException, "away"):
            users.infer(page, user_state="user")
        self.assertEqual(len(calls), 1)

    def test_keeps_users_as_long_as_it_is_told(self):
        from warprank_client import UserClient

        divided = self.run_server("--keep-users", "item", "--user-seconds", "0.001")
        self.assertIn("\nusers: ", divided.bound)
        users = UserClient(divided.client, "din_mmoe")
        page = self.pages(users.layout, users.later_layout, 1, 1)[0]
        deadline = time.monotonic() + 60
        while self.metric(divided, "user_lookups_total", ',result="expired"') == 0 and time.monotonic() < deadline:
            users.infer(page, user_state="user")
        self.assertGreater(self.metric(divided, "user_lookups_total", ',result="expired"'), 0)

    def test_rank_shows_two_pages_of_a_user(self):
        divided = self.run_server("--keep-users", "item")
        done = subprocess.run([sys.executable, str(ROOT / "tools/client/rank.py"), "--url",
                               f"127.0.0.1:{divided.port}", "--user-state", "42"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"(?m)^ctr of version 1: \[", done.stdout)), 2)
        self.assertEqual(done.stdout.count("the user is kept\n"), 2)
        self.assertEqual(self.metric(divided, "user_requests_total", ',user="known"'), 1)

    def test_compares_users_and_finds_callers_that_are_wrong(self):
        import numpy
        from warprank_client import UserClient, blob_inputs

        divided = self.run_server("--keep-users", "item", "--compare-users")
        users = UserClient(divided.client, "din_mmoe", most_users=0)  # whole requests
        one, other = (self.pages(users.layout, users.later_layout, user, 1)[0] for user in (1, 2))
        users.infer(one, user_state="same")
        result = users.infer(other, user_state="same")
        expected = divided.client.infer("din_mmoe", blob_inputs([users.layout.pack(other)]))
        numpy.testing.assert_array_equal(result.as_numpy("ctr"), expected.as_numpy("ctr"))
        self.assertEqual(self.metric(divided, "user_requests_total", ',user="changed"'), 1)

    def test_the_cpp_client_sends_the_items_alone(self):
        import numpy
        from warprank_client import UserClient, blob_inputs

        divided = self.run_server("--keep-users", "item")
        users = UserClient(divided.client, "din_mmoe")
        pages = self.pages(users.layout, users.later_layout, 1, 3)
        text = "".join(json.dumps({name: a.tolist() for name, a in page.items()}) + "\n" for page in pages)
        done = subprocess.run([pathlib.Path(SERVER).with_name("rank_client"), "--url", f"127.0.0.1:{divided.port}",
                               "--timeout-ms", "60000", "--user-state", "user 1"], input=text, capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(lines), 3)
        for page, line in zip(pages, lines):
            expected = divided.client.infer("din_mmoe", blob_inputs([users.layout.pack(page)]))
            numpy.testing.assert_allclose(line["ctr"], expected.as_numpy("ctr").ravel(), rtol=1e-5)
        self.assertEqual(self.metric(divided, "user_requests_total", ',user="known"'), 2)


class LifeTest(unittest.TestCase):
    def test_serves_others_beside_many_connections(self):
        import grpc
        from tritonclient.grpc import service_pb2, service_pb2_grpc

        def num_threads(process):
            return int(re.search(r"Threads:\s*(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1])

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 4096:
            self.skipTest(f"only {hard} files may be open")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))  # the server's, too
        server = RunningServer()
        half_open = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
        for connection in half_open[:50]:
            connection.sendall(b"PRI * HTTP/2.0\r\n")
        channels = [grpc.insecure_channel(f"127.0.0.1:{server.port}", [("grpc.use_local_subchannel_pool", 1)])
                    for _ in range(50)]
        idle = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(1000)]
        for connection in idle:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")  # and no settings
        for connection in idle:
            self.assertEqual(connection.recv(9, socket.MSG_WAITALL)[3], 4, "the server's settings")
        for channel in channels:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            self.assertTrue(stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=60).ready)
        self.assertLess(num_threads(server.process), 60)
        for channel in channels:
            channel.close()
        for connection in half_open + idle:
            connection.close()
        self.assertTrue(server.client.is_server_ready())
        server.stop()

    def test_drains_when_it_is_told_to_stop(self):
        server = RunningServer("--grace-seconds", "3")
        self.assertTrue(server.client.is_server_ready())
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        while server.client.is_server_ready() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(server.client.is_server_ready())
        self.assertEqual(server.get("/healthz")[0], 503)
        events = server.stop()
        self.assertEqual(events["drain"]["grace_seconds"], 3)
        self.assertEqual(events["stop"]["scored"], 0)
        self.assertEqual(server.process.returncode, 0)

    def test_refuses_options_that_cannot_be(self):
        nowhere = ["--weights", str(WEIGHTS), "--address", "nowhere:port"]
        for options, message in [(nowhere, "address: expected one that is free to listen on"),
                                 (["--weights", "/nowhere"], "/nowhere/dense.safetensors"),
                                 (["--model", str(WEIGHTS)], "/graph.json"),
                                 (["--model", str(WEIGHTS), "--graph", "x"], "--model excludes --graph"),
                                 (["--engine", "cuda"], "WARPRANK_CUDA"),
                                 (["--keep-users", "items"], "did you mean 'item'"),
                                 (["--keep-users", "user"], "user"),
                                 (["--user-bytes", "5000"], "--user-bytes requires --keep-users"),
                                 (["--compare-users"], "--compare-users requires --keep-users"),
                                 (["--keep-users", "item", "--user-bytes", "0"], "--user-bytes: Value 0 not in range"),
                                 (["--keep-users", "item", "--user-device-bytes", "4096"],
                                  "states of users: expected a GPU, which has memory of its own, got the host"),
                                 (["--keep-users", "item", "--user-device-bytes", "1"],
                                  "--user-device-bytes: Value 1 not in range"),
                                 (["--keep-users", "item", "--user-seconds", "0"],
                                  "--user-seconds: Value 0 not in range"),
                                 (["--keep-users", "item", "--user-update-seconds", "1"],
                                  "--user-update-seconds requires --follow-changes")]:
            done = subprocess.run([SERVER, *options], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(message, done.stderr)

    def test_speaks_tls(self):
        import tritonclient.grpc

        with tempfile.TemporaryDirectory() as folder:
            key, certificate = f"{folder}/key.pem", f"{folder}/certificate.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                            "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key,
                            "-out", certificate], check=True, capture_output=True)
            server = RunningServer("--tls-certificate", certificate, "--tls-key", key, "--token", "secret")
            client = tritonclient.grpc.InferenceServerClient(f"localhost:{server.port}", ssl=True,
                                                             root_certificates=certificate)
            self.assertTrue(client.is_server_live())
            self.assertEqual(client.get_server_metadata(headers={"authorization": "Bearer secret"}).name, "warprank")
            with self.assertRaisesRegex(Exception, "the server's token"):
                client.get_server_metadata()
            self.assertEqual(server.get("/healthz")[0], 200)
            self.assertEqual(server.get("/v2")[0], 404, "is not to be had in the clear")
            client.close()
            server.stop()


class SoakTest(unittest.TestCase):
    """Good, wrong and abandoned calls while the model is exchanged, for WARPRANK_SOAK_SECONDS."""

    def setUp(self):
        from warprank_client import Layout

        self.server = RunningServer("--contexts", "2", "--record-every", "10")
        self.layout = Layout.of_server(self.server.client, "din_mmoe")
        self.unexpected = []
        self.num_scored = 0
        self.stops = threading.Event()

    def call(self, seed):
        """Until it is told to stop, with a client of its own."""
        import numpy
        import tritonclient.grpc
        from rank import made_up
        from tritonclient.utils import InferenceServerException
        from warprank_client import blob_inputs, named_inputs

        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.server.port}")
        requests = [made_up(self.layout, rows, seed) for rows in (1, 20, 150)]
        expected = [client.infer("din_mmoe", named_inputs(self.layout, r)).as_numpy("ctr") for r in requests]
        random = numpy.random.default_rng(seed)

        def refused(inputs, **options):
            try:
                client.infer("din_mmoe", inputs, **options)
                self.unexpected.append("an answer to a wrong call")
            except InferenceServerException as error:
                if error.status() not in ("StatusCode.INVALID_ARGUMENT", "StatusCode.DEADLINE_EXCEEDED"):
                    self.unexpected.append(str(error))

        while not self.stops.is_set():
            which, turn = random.integers(0, 3), random.integers(0, 10)
            packed = self.layout.pack(requests[which])
            if turn == 0:
                broken = bytearray(packed)
                broken[random.integers(0, 64)] ^= 1 << int(random.integers(0, 8))
                refused(blob_inputs([bytes(broken)[:random.integers(0, len(broken))]]))
            elif turn == 1:
                refused(named_inputs(self.layout, {**requests[1], "film_id": numpy.arange(19)}))
            elif turn == 2:
                refused(blob_inputs([packed]), timeout=1)
            elif turn == 3:
                abandoned = client.async_infer("din_mmoe", blob_inputs([packed]), lambda result, error: None)
                abandoned.cancel()
            else:
                inputs = blob_inputs([packed]) if turn < 8 else named_inputs(self.layout, requests[which])
                try:
                    if not (client.infer("din_mmoe", inputs).as_numpy("ctr") == expected[which]).all():
                        self.unexpected.append("other scores")
                    self.num_scored += 1
                except InferenceServerException as error:
                    self.unexpected.append(str(error))
        client.close()

    def memory(self):
        """Of the server, in MB."""
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s*(\d+)", status)[1]) / 1024

    def test_goes_on(self):
        import grpc

        seconds = float(os.environ.get("WARPRANK_SOAK_SECONDS", 5))
        threads = [threading.Thread(target=self.call, args=[seed]) for seed in range(3)]
        for thread in threads:
            thread.start()
        end, begin_memory = time.monotonic() + seconds, None
        modes = itertools.cycle(["full", "dense_and_rows", "drain"])
        try:
            while time.monotonic() < end:
                time.sleep(min(1, seconds / 10))
                self.server.load(next(modes))
                if begin_memory is None and time.monotonic() > end - 0.7 * seconds:
                    begin_memory = self.memory()
        except grpc.RpcError as error:
            self.unexpected.append(str(error))
        self.stops.set()
        for thread in threads:
            thread.join()
        self.assertEqual(self.unexpected, [])
        self.assertGreater(self.num_scored, 10)
        self.assertLess(self.memory(), 1.1 * begin_memory + 20)
        events = self.server.stop()
        self.assertEqual(events["stop"]["failed"], 0)
        self.assertEqual(events["swap"]["result"], "done")


if __name__ == "__main__":
    SERVER, VECTORS, PROTO, venv = sys.argv[1:5]
    if sys.argv[5:] != ["--in-venv"]:
        with_packages(pathlib.Path(venv))
    unittest.main(argv=sys.argv[:1])
