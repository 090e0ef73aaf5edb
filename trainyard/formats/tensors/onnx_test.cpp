#include "trainyard/formats/tensors/onnx.h"

#include <gtest/gtest.h>
#include <protozero/pbf_reader.hpp>

#include "trainyard/core/testing/error.h"

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
