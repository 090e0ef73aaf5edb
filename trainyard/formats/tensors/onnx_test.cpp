#include "trainyard/formats/tensors/onnx.h"

#include <set>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <protozero/pbf_reader.hpp>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::formats::onnx_test {
namespace {

using protozero::pbf_reader;

// The first submessage under these field numbers, one inside the other.
pbf_reader inside(pbf_reader message, std::initializer_list<uint32_t> fields) {
  for (const uint32_t field : fields) {
    if (!message.next(field)) throw core::Error(core::ErrorCode::kNotFound, "field " + std::to_string(field));
    message = message.get_message();
  }
  return message;
}

OnnxModel sample() {
  OnnxModel model{.producer = "test", .producer_version = "7"};
  model.metadata["key"] = "value";
  model.graph.name = "sample";
  model.graph.inputs = {{"x", {-1, 2}}};
  model.graph.outputs = {{"y", {-1, 3}}};
  model.graph.initializers = {{"w", {3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}}};
  model.graph.nodes = {{.op_type = "Gemm",
                        .name = "fc",
                        .inputs = {"x", "w"},
                        .outputs = {"y"},
                        .attributes = {{"transB", int64_t{1}}, {"alpha", 0.5F}}}};
  return model;
}

// Field numbers of onnx.proto; ONNX's own checker reads whole models in tests/onnx_runtime_runs_layers.py.
TEST(Onnx, EncodesTheMessagesOfItsDefinition) {
  const std::string content = encode_onnx(sample());
  pbf_reader model(content);
  ASSERT_TRUE(model.next(1));
  EXPECT_EQ(model.get_int64(), 8);
  pbf_reader opset = inside(pbf_reader(content), {8});
  ASSERT_TRUE(opset.next(2));
  EXPECT_EQ(opset.get_int64(), 17);

  pbf_reader tensor = inside(pbf_reader(content), {7, 5});
  std::vector<int64_t> sizes;
  std::string name, raw;
  int32_t type = 0;
  while (tensor.next()) {
    switch (tensor.tag()) {
      case 1:
        sizes.push_back(tensor.get_int64());
        break;
      case 2:
        type = tensor.get_int32();
        break;
      case 8:
        name = tensor.get_string();
        break;
      case 9:
        raw = tensor.get_string();
        break;
      default:
        tensor.skip();
    }
  }
  EXPECT_EQ(name, "w");
  EXPECT_EQ(type, 1);
  EXPECT_EQ(sizes, (std::vector<int64_t>{3, 2}));
  ASSERT_EQ(raw.size(), 24u);
  EXPECT_EQ(raw.substr(0, 8), std::string("\0\0\x80?\0\0\0@", 8));

  pbf_reader batch = inside(pbf_reader(content), {7, 11, 2, 1, 2, 1});  // input, its type, tensor, shape, dimension
  ASSERT_TRUE(batch.next(2));
  EXPECT_EQ(batch.get_string(), "batch");
}

// A message as text, "field: value" in the order of its bytes; `messages` names the fields that are messages, by path.
std::string text_of(std::string_view bytes, const std::set<std::string>& messages, const std::string& path = "") {
  std::string text;
  pbf_reader message(bytes.data(), bytes.size());
  while (message.next()) {
    const std::string field = path + fmt::format("{}{}", path.empty() ? "" : ".", message.tag());
    if (message.wire_type() == protozero::pbf_wire_type::varint) {
      text += fmt::format("{}: {}\n", field, message.get_int64());
    } else if (message.wire_type() == protozero::pbf_wire_type::fixed32) {
      text += fmt::format("{}: {}f\n", field, message.get_float());
    } else if (messages.contains(field)) {
      text += text_of(message.get_string(), messages, field);
    } else {
      text += fmt::format("{}: '{}'\n", field, message.get_string());
    }
  }
  return text;
}

// Field numbers and values of enums are those of onnx.proto.
TEST(Onnx, WritesEachMemberAndNothingElse) {
  OnnxModel model{.opset = 16, .producer = "p", .producer_version = "v"};
  model.metadata = {{"k", "one"}, {"l", "two"}};
  model.graph.name = "g";
  model.graph.inputs = {{"x", {-1, 0, 2}}, {"i", {}, true}};
  model.graph.outputs = {{"y", {1}}};
  model.graph.initializers = {{"f", {}, std::vector<float>{0}},
                              {"i", {1}, std::vector<int64_t>{0x4847464544434241}},
                              {"s", {2}, std::vector<int8_t>{65, 66}},
                              {"u", {0, 3}, std::vector<uint8_t>{}}};
  model.graph.nodes = {
      {.op_type = "A", .name = "a", .inputs = {"x", ""}, .outputs = {"b", "c"}},
      {.op_type = "B",
       .name = "n",
       .inputs = {},
       .outputs = {"y"},
       .attributes = {{"r", 0.5F}, {"n", int64_t{-3}}, {"l", std::vector<int64_t>{4, 5}}, {"t", std::string("text")}}}};
  const std::set<std::string> messages = {
      "7",    "7.1",    "7.1.5",    "7.5",        "7.11",         "7.11.2", "7.11.2.1", "7.11.2.1.2", "7.11.2.1.2.1",
      "7.12", "7.12.2", "7.12.2.1", "7.12.2.1.2", "7.12.2.1.2.1", "8",      "14"};
  std::string zeros = "7.5.9: '" + std::string(4, '\0') + "'\n";
  EXPECT_EQ(text_of(encode_onnx(model), messages),
            "1: 8\n2: 'p'\n3: 'v'\n8.2: 16\n14.1: 'k'\n14.2: 'one'\n14.1: 'l'\n14.2: 'two'\n"
            "7.1.1: 'x'\n7.1.1: ''\n7.1.2: 'b'\n7.1.2: 'c'\n7.1.3: 'a'\n7.1.4: 'A'\n"
            "7.1.2: 'y'\n7.1.3: 'n'\n7.1.4: 'B'\n"
            "7.1.5.1: 'r'\n7.1.5.2: 0.5f\n7.1.5.20: 1\n"
            "7.1.5.1: 'n'\n7.1.5.3: -3\n7.1.5.20: 2\n"
            "7.1.5.1: 'l'\n7.1.5.8: 4\n7.1.5.8: 5\n7.1.5.20: 7\n"
            "7.1.5.1: 't'\n7.1.5.4: 'text'\n7.1.5.20: 3\n"
            "7.2: 'g'\n"
            "7.5.2: 1\n7.5.8: 'f'\n" +
                zeros +
                "7.5.1: 1\n7.5.2: 7\n7.5.8: 'i'\n7.5.9: 'ABCDEFGH'\n"
                "7.5.1: 2\n7.5.2: 3\n7.5.8: 's'\n7.5.9: 'AB'\n"
                "7.5.1: 0\n7.5.1: 3\n7.5.2: 2\n7.5.8: 'u'\n7.5.9: ''\n"
                "7.11.1: 'x'\n7.11.2.1.1: 1\n7.11.2.1.2.1.2: 'batch'\n7.11.2.1.2.1.1: 0\n7.11.2.1.2.1.1: 2\n"
                "7.11.1: 'i'\n7.11.2.1.1: 7\n"
                "7.12.1: 'y'\n7.12.2.1.1: 1\n7.12.2.1.2.1.1: 1\n");
}

TEST(Onnx, WritesIntoAFile) {
  const core::TempDir temp;
  write_onnx(temp.file("x.onnx"), sample());
  EXPECT_EQ(core::local_file_system().read_file(temp.file("x.onnx")), encode_onnx(sample()));
}

TEST(Onnx, RefusesTwoGibibytesBeforeMemoryIsTaken) {
  OnnxModel model = sample();
  const float one = 1;
  model.graph.initializers.push_back({"huge", {int64_t{1} << 29}, std::span<const float>(&one, size_t{1} << 29)});
  EXPECT_EQ(core::message_of([&] { encode_onnx(model); }, core::ErrorCode::kUnsupported),
            "an ONNX file cannot hold this model: sample: expected less than 2 GiB, got 2147483672 bytes; write "
            "safetensors, which has no such limit");
}

TEST(Onnx, RefusesATensorThatDoesNotFitItsShape) {
  OnnxModel model = sample();
  model.graph.initializers[0].shape = {3, 3};
  EXPECT_EQ(core::message_of([&] { encode_onnx(model); }),
            "a tensor's shape does not fit its numbers: sample, tensor 'w': expected 9 numbers, got 6");
}

}  // namespace
}  // namespace trainyard::formats::onnx_test
