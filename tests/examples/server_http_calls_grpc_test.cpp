// SPDX-License-Identifier: Apache-2.0
//
// The protocol by HTTP: the same answers as by gRPC, and the same refusals.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/server/http_ports.cpp"
#include "examples/server_testing.hpp"

namespace kserve { namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* infer_path = "/v2/models/model/infer";
constexpr const char* json_length = "Inference-Header-Content-Length";

/// The server by both.
class HttpCallsTest : public GrpcServerTest {
 protected:
  void start(const ServerOptions& options = {}, int most_body_bytes = 1 << 20) {
    GrpcServerTest::start(options);
    HttpOptions http;
    http.limits.body_bytes = static_cast<size_t>(most_body_bytes);
    ports_ = std::make_unique<HttpPorts>(server_->calls(), http, true, 0);
    client_ = client_of(ports_->port());
    client_->set_keep_alive(true);
    client_->set_tcp_nodelay(true);
  }
  /// Only a hang takes as long as it waits.
  static std::unique_ptr<httplib::Client> client_of(int port) {
    auto client = std::make_unique<httplib::Client>("127.0.0.1", port);
    client->set_connection_timeout(std::chrono::minutes(2));
    client->set_read_timeout(std::chrono::minutes(2));
    client->set_write_timeout(std::chrono::minutes(2));
    return client;
  }
  void TearDown() override {
    client_.reset();
    if (server_ != nullptr) server_->stop(std::chrono::seconds(1));
    ports_.reset();
  }

  /// The status, and the body behind it.
  static std::string told(const httplib::Result& result) {
    return result ? std::to_string(result->status) + " " + result->body : "no answer: " + to_string(result.error());
  }
  std::string get(const std::string& path, const httplib::Headers& headers = {}) {
    return told(client_->Get(path, headers));
  }
  httplib::Result post_to(const std::string& path, const std::string& body = {}, const httplib::Headers& headers = {}) {
    return client_->Post(path, headers, body, "application/json");
  }
  std::string post(const std::string& path, const std::string& body = {}, const httplib::Headers& headers = {}) {
    return told(post_to(path, body, headers));
  }
  /// The message of an answer that refuses, behind its status.
  std::string refused(const httplib::Result& result) {
    const json body = result ? json::parse(result->body, nullptr, false) : json();
    if (!body.is_object() || body.count("error") == 0) return told(result);
    return std::to_string(result->status) + " " + body.at("error").get<std::string>();
  }
  std::string infer_refused(const std::string& body, std::optional<std::string> length = std::nullopt) {
    httplib::Headers headers;
    if (length) headers.emplace(json_length, *length);
    return refused(post_to(infer_path, body, headers));
  }

  /// What one who has the message for gRPC sends by HTTP: binary tensors.
  httplib::Result post(const ModelInferRequest& request, bool is_output_binary = true) {
    const auto parameters_of = [](const auto& parameters) {
      json all = json::object();
      for (const auto& [name, value] : parameters)
        all[name] = value.has_bool_param()     ? json(value.bool_param())
                    : value.has_string_param() ? json(value.string_param())
                    : value.has_double_param() ? json(value.double_param())
                    : value.has_uint64_param() ? json(value.uint64_param())
                                               : json(value.int64_param());
      return all;
    };
    json head = {{"inputs", json::array()}, {"parameters", parameters_of(request.parameters())}};
    if (!request.id().empty()) head["id"] = request.id();
    head["parameters"]["binary_data_output"] = is_output_binary;
    std::string binary;
    for (int i = 0; i < request.inputs_size(); ++i) {
      const auto& input = request.inputs(i);
      json parameters = parameters_of(input.parameters());
      parameters["binary_data_size"] = request.raw_input_contents(i).size();
      head["inputs"].push_back({{"name", input.name()},
                                {"datatype", input.datatype()},
                                {"shape", std::vector<int64_t>(input.shape().begin(), input.shape().end())},
                                {"parameters", parameters}});
      binary += request.raw_input_contents(i);
    }
    for (const auto& output : request.outputs())
      head["outputs"].push_back({{"name", output.name()}, {"parameters", parameters_of(output.parameters())}});
    const std::string text = head.dump();
    const std::string version = request.model_version().empty() ? "" : "/versions/" + request.model_version();
    return client_->Post("/v2/models/" + request.model_name() + version + "/infer",
                         {{json_length, std::to_string(text.size())}}, text + binary, "application/octet-stream");
  }

  /// The tensors of an answer, as gRPC has them.
  static std::map<std::string, std::string> raw_outputs(const httplib::Result& result) {
    if (!result || result->status != 200) {
      ADD_FAILURE() << told(result);
      return {};
    }
    const bool is_binary = result->has_header(json_length);
    const size_t head = is_binary ? std::stoul(result->get_header_value(json_length)) : result->body.size();
    EXPECT_EQ(result->get_header_value("Content-Type"), is_binary ? "application/octet-stream" : "application/json");
    std::map<std::string, std::string> outputs;
    size_t at = head;
    const json answer = json::parse(result->body.substr(0, head));
    for (const json& output : answer.at("outputs")) {
      std::string& raw = outputs[output.at("name")];
      if (output.count("data") == 0) {
        const size_t size = output.at("parameters").at("binary_data_size");
        raw = result->body.substr(at, size);
        at += size;
      } else if (output.at("datatype") == "FP32") {
        raw = bytes(output.at("data").get<std::vector<float>>());
      } else if (output.at("datatype") == "INT64") {
        raw = bytes(output.at("data").get<std::vector<int64_t>>());
      } else {
        for (const std::string text : output.at("data"))
          raw += bytes(std::vector<uint32_t>{static_cast<uint32_t>(text.size())}) + text;
      }
    }
    EXPECT_EQ(at, result->body.size());
    return outputs;
  }
  std::map<std::string, std::string> by_grpc(const ModelInferRequest& request) {
    ModelInferResponse response;
    const grpc::Status status = infer(request, response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return kserve::raw_outputs(response);
  }

  std::unique_ptr<HttpPorts> ports_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(HttpCallsTest, TellsWhatItIs) {
  start();
  EXPECT_EQ(get("/v2/health/live"), "200 ");
  EXPECT_EQ(get("/v2/health/ready"), "200 ");
  EXPECT_THAT(get("/v2"), StartsWith(R"(200 {"name":"warprank","version":")"));
  const std::string metadata = R"({"name":"model","versions":["1"],"platform":"warprank",)"
                               R"("inputs":[{"name":"x","datatype":"FP32","shape":[-1,1]}],)"
                               R"("outputs":[{"name":"y","datatype":"FP32","shape":[-1,1]}]})";
  EXPECT_EQ(get("/v2/models/model"), "200 " + metadata);
  EXPECT_EQ(get("/v2/models/model/versions/1"), "200 " + metadata);
  EXPECT_EQ(get("/v2/models/model/versions/1/ready"), "200 ");
  EXPECT_EQ(get("/v2/models/model/versions/2/ready"),
            R"(404 {"error":"version of model 'model': expected 1 or none, got '2'"})");
  EXPECT_EQ(get("/v2/models/other"), R"(404 {"error":"model: expected 'model', got 'other'"})");
  EXPECT_THAT(get("/v2/models/model/config"),
              AllOf(StartsWith(R"(200 {"name":"model","platform":"warprank","max_batch_size":0,)"
                               R"("input":[{"name":"x","data_type":"TYPE_FP32","dims":[-1,1],"optional":true}],)"),
                    HasSubstr(R"("parameters":{"layout":{"string_value":"{\"axes\":)")));
  raw_outputs(post(named({1, 2}, {0, 2})));
  for (const char* path : {"/v2/models/model/stats", "/v2/models/stats"})
    EXPECT_THAT(get(path), AllOf(StartsWith(R"(200 {"model_stats":[{"name":"model","version":"1","last_inference":)"),
                                 HasSubstr(R"("inference_count":1,)")));
  EXPECT_EQ(post("/v2/repository/index"), R"(200 [{"name":"model","version":"1","state":"READY","reason":""}])");
  EXPECT_EQ(get("/healthz"), "200 ready\n");
  EXPECT_THAT(get("/metrics"), HasSubstr("warprank_requests_total{model=\"model\",outcome=\"scored\"} 1\n"));
}

TEST_F(HttpCallsTest, HasNoSharedMemory) {
  start();
  for (const std::string kind : {"system", "cuda"}) {
    const std::string path = "/v2/" + kind + "sharedmemory", name = kind == "cuda" ? "CUDA" : kind;
    EXPECT_EQ(get(path + "/status"), "200 []");
    EXPECT_EQ(get(path + "/region/a/status"),
              R"(404 {"error":"there is no )" + name + R"( shared memory region 'a'"})");
    EXPECT_EQ(post(path + "/unregister"), "200 ");
    EXPECT_EQ(post(path + "/region/a/unregister"), "200 ");
    EXPECT_EQ(post(path + "/region/a/register", "{}"),
              R"(400 {"error":")" + name +
                  R"( shared memory region 'a': expected values in messages, as the server has no shared memory"})");
  }
}

TEST_F(HttpCallsTest, ScoresAsGrpcDoes) {
  start();
  const ModelInferRequest request = named({0.5f, -1, 0.1f}, {0, 2, 2, 3});
  const auto expected = by_grpc(request);
  ASSERT_EQ(expected.size(), 2u);
  for (const bool is_output_binary : {false, true}) {
    const httplib::Result result = post(request, is_output_binary);
    EXPECT_EQ(raw_outputs(result), expected);
    EXPECT_THAT(result->body,
                StartsWith(R"({"model_name":"model","model_version":"1","id":"seven","outputs":[{"name":"y",)"
                           R"("datatype":"FP32","shape":[3,1],)"));
  }
  const std::string offsets = R"({"name":"item.offsets","datatype":"INT64","shape":[4],"data":[0,2,2,3]})";
  for (const char* values : {"[0.5,-1,0.1]", "[[0.5],[-1],[0.1]]", "[[0.5,-1.0],[],[[[1e-1]]]]"})
    for (const char* x : {R"({"data":%,"name":"x","datatype":"FP32","shape":[3]})",
                          R"({"name":"x","datatype":"FP32","shape":[3,1],"other":{},"data":%})"}) {
      std::string text = x;
      text.replace(text.find('%'), 1, values);
      EXPECT_EQ(raw_outputs(post_to(infer_path, R"({"inputs":[)" + text + "," + offsets + "]}")), expected) << text;
    }
  // Some in JSON and some behind it, in types that differ.
  const std::string mixed = R"({"inputs":[{"name":"item.offsets","datatype":"INT32","shape":[4],"data":[0,2,2,3]},)"
                            R"({"name":"x","datatype":"FP32","shape":[3],"parameters":{"binary_data_size":12}}],)"
                            R"("outputs":[{"name":"y","parameters":{"binary_data":true}}]})";
  const httplib::Result result =
      post_to(infer_path, mixed + request.raw_input_contents(0), {{json_length, std::to_string(mixed.size())}});
  EXPECT_EQ(raw_outputs(result), expected);
  EXPECT_THAT(result->body,
              AllOf(HasSubstr(R"("shape":[3,1],"parameters":{"binary_data_size":12}})"),
                    HasSubstr(R"({"name":"item.offsets","datatype":"INT64","shape":[4],"data":[0,2,2,3]})")));
}

TEST_F(HttpCallsTest, ScoresBlobsAndTellsOfThoseThatAreWrong) {
  start();
  const std::string good = blob({0.5f, 0.1f}),
                    length = bytes(std::vector<uint32_t>{static_cast<uint32_t>(good.size())});
  ModelInferRequest request;
  request.set_model_name("model");
  add_raw(request, "request_blobs", "BYTES", {2}, length + good + std::string("\4\0\0\0blob", 8));
  const auto expected = by_grpc(request);
  EXPECT_EQ(expected.count("errors"), 1u);
  EXPECT_EQ(raw_outputs(post(request, true)), expected);
  EXPECT_EQ(raw_outputs(post(request, false)), expected);
  request.clear_inputs();
  request.clear_raw_input_contents();
  add_raw(request, "request_blobs", "BYTES", {1}, std::string("\4\0\0\0blob", 8));
  ModelInferResponse response;
  EXPECT_EQ(infer_refused(R"({"inputs":[{"name":"request_blobs","datatype":"BYTES","shape":[1],"data":["blob"]}]})"),
            "400 " + infer(request, response).error_message());
}

TEST_F(HttpCallsTest, RefusesWhatGrpcRefuses) {
  start();
  int num_refused = 0;
  const auto refuses = [&](int status, auto change) {
    ModelInferRequest request = named({1, 2}, {0, 2});
    change(request);
    ModelInferResponse response;
    const grpc::Status by_grpc = infer(request, response);
    EXPECT_FALSE(by_grpc.ok());
    EXPECT_EQ(refused(post(request)), std::to_string(status) + " " + by_grpc.error_message());
    ++num_refused;
  };
  refuses(404, [](auto& r) { r.set_model_name("modell"); });
  refuses(404, [](auto& r) { r.set_model_version("7"); });
  refuses(400, [](auto& r) { r.mutable_inputs(0)->set_datatype("FP64"); });
  refuses(400, [](auto& r) { r.mutable_inputs(0)->set_datatype(""); });
  refuses(400, [](auto& r) { r.mutable_inputs(0)->set_name("z"); });
  refuses(400, [](auto& r) { r.mutable_inputs(1)->set_name("x"); });
  refuses(400, [](auto& r) { r.mutable_inputs(0)->set_shape(0, 3); });
  refuses(400, [](auto& r) { r.mutable_inputs(0)->set_shape(0, -1); });
  refuses(400, [](auto& r) { r.mutable_inputs(0)->set_shape(0, std::numeric_limits<int64_t>::max()); });
  refuses(400, [](auto& r) { r.set_raw_input_contents(0, "1234567"); });
  refuses(400, [](auto& r) { r.set_raw_input_contents(1, bytes<int64_t>({0, 3})); });
  refuses(400, [](auto& r) { r.set_raw_input_contents(0, bytes<float>({1, std::nanf("")})); });
  refuses(400, [](auto& r) { r.add_outputs()->set_name("z"); });
  refuses(400, [](auto& r) {
    r.add_outputs()->set_name("y");
    r.add_outputs()->set_name("y");
  });
  for (const char* name : {"timeout", "priority"}) {
    const auto with = [&](auto set) { refuses(400, [&](auto& r) { set((*r.mutable_parameters())[name]); }); };
    with([](auto& p) { p.set_string_param("1000"); });
    with([](auto& p) { p.set_double_param(0.5); });
    with([](auto& p) { p.set_int64_param(-1); });
    with([](auto& p) { p.set_uint64_param(1ull << 63); });
    with([](auto& p) { p.set_bool_param(true); });
  }
  refuses(400,
          [](auto& r) { (*r.mutable_inputs(0)->mutable_parameters())["shared_memory_region"].set_string_param("a"); });
  refuses(400, [](auto& r) {
    auto& output = *r.add_outputs();
    output.set_name("y");
    (*output.mutable_parameters())["classification"].set_int64_param(1);
  });
  refuses(400, [](auto& r) {
    r.clear_inputs();
    r.clear_raw_input_contents();
    add_raw(r, "request_blobs", "BYTES", {17}, std::string(4 * 17, '\0'));
  });
  EXPECT_GE(num_refused, 26);
  // Late before it begins: there is no time in a microsecond.
  ModelInferRequest late = named({1, 2}, {0, 2});
  (*late.mutable_parameters())["timeout"].set_int64_param(1);
  EXPECT_THAT(refused(post(late)), testing::AnyOf(StartsWith("504 "), StartsWith("200 ")));
}

TEST_F(HttpCallsTest, SaysWhatIsWrongWithABody) {
  start();
  const std::string x = R"({"name":"x","datatype":"FP32","shape":[2],"data":[1,2]})";
  const auto with_inputs = [&](const std::string& inputs) { return infer_refused(R"({"inputs":[)" + inputs + "]}"); };
  const auto with_data = [&](const std::string& datatype, const std::string& data) {
    return with_inputs(R"({"name":"x","datatype":")" + datatype + R"(","shape":[1],"data":)" + data + "}");
  };
  EXPECT_THAT(infer_refused(R"({"inputs":[)" + x + "]}"), StartsWith("200 "));
  EXPECT_THAT(infer_refused(""), StartsWith("400 body: expected JSON of a call, got [json.exception.parse_error"));
  EXPECT_THAT(infer_refused("{"), StartsWith("400 body: expected JSON of a call, got [json.exception.parse_error"));
  EXPECT_THAT(infer_refused(std::string("{\0}", 3)), StartsWith("400 body: expected JSON of a call, got"));
  EXPECT_THAT(infer_refused("{\"id\":\"\xff\"}"), StartsWith("400 body: expected JSON of a call, got"));
  EXPECT_THAT(infer_refused(R"({"inputs":[1e999]})"), StartsWith("400 body: expected JSON of a call, got"));
  EXPECT_THAT(infer_refused(R"({"inputs":[]} {})"), StartsWith("400 body: expected JSON of a call, got"));
  EXPECT_EQ(infer_refused("[]"), "400 body: expected an object, got array");
  EXPECT_EQ(infer_refused("7"), "400 body: expected an object, got number");
  EXPECT_EQ(infer_refused("{}"), "400 body: expected a member 'inputs', array, got none");
  EXPECT_EQ(infer_refused(R"({"inputs":{}})"), "400 body: expected a member 'inputs', array, got object");
  EXPECT_EQ(infer_refused(R"({"id":7,"inputs":[]})"), "400 body: expected a member 'id', string, got number");
  EXPECT_EQ(infer_refused(R"({"parameters":[],"inputs":[]})"),
            "400 body: expected a member 'parameters', object, got array");
  EXPECT_EQ(infer_refused(R"({"parameters":{"a":[]},"inputs":[]})"),
            "400 body, parameter 'a': expected a number, a text or a truth value, got array");
  EXPECT_EQ(infer_refused(R"({"parameters":{"binary_data_output":1},"inputs":[]})"),
            "400 body: expected a member 'binary_data_output', boolean, got number");
  EXPECT_EQ(infer_refused(R"({"inputs":[],"inputs":[]})"),
            "400 member 'inputs': expected one of that name, got a second one");
  EXPECT_EQ(infer_refused(R"({"inputs":[],"outputs":[{"name":7}]})"),
            "400 an output: expected a member 'name', string, got number");
  EXPECT_EQ(infer_refused(R"({"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":"yes"}}]})"),
            "400 output 'y': expected a member 'binary_data', boolean, got string");
  EXPECT_EQ(with_inputs("7"), "400 an input: expected an object, got number");
  EXPECT_EQ(with_inputs("{}"), "400 an input: expected a member 'name', string, got none");
  EXPECT_EQ(with_inputs(R"({"name":"x","shape":[1]})"),
            "400 tensor 'x': expected a member 'datatype', string, got none");
  EXPECT_EQ(with_inputs(R"({"name":"x","datatype":"FP32"})"),
            "400 tensor 'x': expected a member 'shape', array, got none");
  EXPECT_EQ(with_inputs(R"({"name":"x","datatype":"FP32","shape":[1.5],"data":[1]})"),
            "400 tensor 'x', shape: expected integers of INT64, got 1.5");
  const std::string neither =
      "400 tensor 'x': expected values in 'data', or 'binary_data_size' of them behind the JSON, ";
  EXPECT_EQ(with_inputs(R"({"name":"x","datatype":"FP32","shape":[1]})"), neither + "got neither");
  EXPECT_EQ(with_inputs(R"({"name":"x","datatype":"FP32","shape":[1],"data":[1],"parameters":{"binary_data_size":4}})"),
            neither + "got both");
  EXPECT_EQ(with_inputs(R"({"name":"x","datatype":"FP32","shape":[1],"data":[1],"data":[2]})"),
            "400 member 'data': expected one of that name, got a second one");
  for (const char* data : {"7", "{}", "[{}]", "null"})
    EXPECT_EQ(with_data("FP32", data), "400 'data' of an input: expected a list of values, got something else") << data;
  EXPECT_EQ(with_data("FP32", R"(["1"])"), "400 tensor 'x': expected numbers of FP32, got \"1\"");
  EXPECT_EQ(with_data("FP32", "[null]"), "400 tensor 'x': expected numbers of FP32, got null");
  EXPECT_EQ(with_data("FP32", "[1e39]"), "400 tensor 'x': expected numbers of FP32, got 1e+39");
  EXPECT_EQ(with_data("INT64", "[1.5]"), "400 tensor 'x': expected integers of INT64, got 1.5");
  EXPECT_EQ(with_data("INT64", "[9223372036854775808]"),
            "400 tensor 'x': expected integers of INT64, got 9223372036854775808");
  EXPECT_EQ(with_data("UINT64", "[-1]"), "400 tensor 'x': expected integers of UINT64, got -1");
  EXPECT_EQ(with_data("INT32", "[-2147483649]"), "400 tensor 'x': expected integers of INT32, got -2147483649");
  EXPECT_EQ(with_data("BYTES", "[1]"), "400 tensor 'x': expected texts of BYTES, got 1");
  EXPECT_EQ(with_data("FP64", "[1]"), "400 tensor 'x': expected FP32, got FP64");
  EXPECT_EQ(with_data("FP32", "[1,2]"), "400 tensor 'x': expected the bytes of a FP32 of shape [1], got 8 bytes");

  const std::string nested = "400 body: expected JSON that is nested at most 32 deep, got more";
  EXPECT_EQ(with_data("FP32", std::string(100'000, '[')), nested);
  EXPECT_EQ(infer_refused(std::string(500'000, '[')), nested);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_EQ(infer_refused(objects), nested);
  std::string members = "0";
  for (int i = 0; i < 200'000; ++i) members += ",0";
  EXPECT_EQ(infer_refused(R"({"other":[)" + members + "]}"),
            "400 body: expected at most 100000 members but for 'data', got more");
  EXPECT_EQ(with_inputs(R"({"name":"x","datatype":"FP32","shape":[200001],"data":[)" + members + "]}"),
            "400 rows of 'item': expected at most 200, got 200001");
  EXPECT_EQ(infer_refused(std::string(1'100'000, ' ')), "413 body: expected at most 1048576 bytes, got 1100000");
}

TEST_F(HttpCallsTest, SaysWhatIsWrongWithBinaryData) {
  start();
  const auto head = [](const std::string& size) {
    return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":)" + size + "}}]}";
  };
  const std::string good = head("8"), values = bytes<float>({1, 2});
  const auto with = [&](const std::string& text, const std::string& behind) {
    return infer_refused(text + behind, std::to_string(text.size()));
  };
  EXPECT_THAT(with(good, values), StartsWith("200 "));
  EXPECT_EQ(with(good, values.substr(1)), "400 tensor 'x': expected 8 bytes behind the JSON, got 7");
  EXPECT_EQ(with(good, values + "x"),
            "400 body: expected as many bytes behind the JSON as all 'binary_data_size' say, got 1 more");
  EXPECT_EQ(with(head("4"), values.substr(4)),
            "400 tensor 'x': expected the bytes of a FP32 of shape [2], got 4 bytes");
  EXPECT_EQ(with(head("18446744073709551615"), values),
            "400 tensor 'x': expected 18446744073709551615 bytes behind the JSON, got 8");
  for (const char* size : {"-8", "8.0", "\"8\"", "null"})
    EXPECT_THAT(with(head(size), values),
                StartsWith("400 tensor 'x': expected a member 'binary_data_size', number, got"));
  EXPECT_THAT(infer_refused(good + values), StartsWith("400 body: expected JSON of a call, got"));
  const std::string size = std::to_string(good.size() + values.size());
  EXPECT_EQ(infer_refused(good + values, std::to_string(good.size() + 9)),
            "400 Inference-Header-Content-Length: expected at most the body's " + size + " bytes, got " +
                std::to_string(good.size() + 9));
  for (const char* length : {"-1", "x", "7.0", "18446744073709551616"})
    EXPECT_EQ(infer_refused(good + values, length),
              std::string("400 Inference-Header-Content-Length: expected bytes of JSON, got '") + length + "'");
}

TEST_F(HttpCallsTest, ExchangesTheModel) {
  start();
  const std::string path = "/v2/repository/models/model/";
  EXPECT_EQ(post(path + "load"), "200 ");
  EXPECT_EQ(post(path + "load", R"({"parameters":{"swap_mode":"drain"}})"), "200 ");
  EXPECT_EQ(get("/v2/models/model/versions/3/ready"), "200 ");
  EXPECT_EQ(post(path + "load", R"({"parameters":{"swap_mode":7}})"),
            R"(400 {"error":"swap_mode: expected one of full, drain, dense_and_rows, got '7'"})");
  EXPECT_THAT(post(path + "load", "[]"), StartsWith("400 "));
  EXPECT_EQ(post("/v2/repository/models/other/load"), R"(404 {"error":"model: expected 'model', got 'other'"})");
  raw_outputs(post(named({1, 2}, {0, 2})));
  next_weight_ = -100;
  EXPECT_THAT(post(path + "load"), StartsWith(R"(409 {"error":)"));
  load_fails_ = true;
  EXPECT_EQ(post(path + "load"), R"(500 {"error":"no such file"})");
  load_fails_ = false;
  EXPECT_EQ(post(path + "unload"), "200 ");
  EXPECT_EQ(refused(post(named({1}, {0, 1}))), "503 the model is unloaded");
  EXPECT_EQ(get("/v2/health/ready"), R"(503 {"error":"not ready"})");
  EXPECT_EQ(get("/v2/models/model/ready"), R"(503 {"error":"not ready"})");
  EXPECT_EQ(get("/v2/health/live"), "200 ");
  EXPECT_EQ(get("/healthz"), "503 not ready\n");
  EXPECT_EQ(post("/v2/repository/index", R"({"ready":true})"), "200 []");
  EXPECT_THAT(post("/v2/repository/index", R"({"ready":1})"), StartsWith("400 "));
  EXPECT_EQ(post("/v2/repository/index"),
            R"(200 [{"name":"model","version":"3","state":"UNAVAILABLE","reason":"unloaded"}])");
}

TEST_F(HttpCallsTest, AsksForTheToken) {
  ServerOptions options;
  options.token = "secret";
  start(options);
  const std::string refused = R"(401 {"error":"expected 'authorization: Bearer' and the server's token"})";
  EXPECT_EQ(get("/v2"), refused);
  EXPECT_EQ(get("/v2", {{"authorization", "Bearer secre"}}), refused);
  EXPECT_EQ(post(infer_path, "{"), refused);
  EXPECT_EQ(post("/v2/repository/models/model/unload"), refused);
  EXPECT_THAT(get("/v2", {{"Authorization", "Bearer secret"}}), StartsWith("200 "));
  for (const char* path : {"/v2/health/live", "/v2/health/ready", "/healthz", "/metrics"})
    EXPECT_THAT(get(path), StartsWith("200 ")) << path;
}

TEST_F(HttpCallsTest, HasCallsAtTheirPathsAndPortAlone) {
  start();
  for (const char* path : {"/", "/v2/", "/v2/models", "/v2/models/", "/v2/models//infer", "/v2/models/model/infer/",
                           "/v2/models/model/versions", "/v2/health", "/v3", "//", "/v2/models/a/b/c/d/e/f"})
    EXPECT_THAT(get(path), StartsWith("404 ")) << path;
  EXPECT_EQ(get(infer_path), R"(405 {"error":"method: expected POST, got GET"})");
  EXPECT_EQ(post("/v2/models/model"), R"(405 {"error":"method: expected GET, got POST"})");
  const std::unique_ptr<httplib::Client> metrics = client_of(ports_->metrics_port());
  EXPECT_THAT(told(metrics->Get("/metrics")), StartsWith("200 "));
  EXPECT_THAT(told(metrics->Get("/v2/health/ready")), StartsWith("200 "));
  EXPECT_THAT(told(metrics->Get("/v2/models/model")), StartsWith("404 "));
  EXPECT_THAT(told(metrics->Post("/v2/models/model/infer", "{}", "application/json")), StartsWith("404 "));
}

}}  // namespace kserve
