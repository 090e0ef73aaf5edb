// ONNX models: a graph of standard operators with its weights, as the protocol buffer messages of onnx.proto
// (docs/formats/onnx.md). Written only.
//
//   OnnxModel model{.graph = {.name = "tiny", .inputs = {{"x", {-1, 3}}}, .outputs = {{"y", {-1, 3}}}}};
//   model.graph.nodes.push_back({.op_type = "Relu", .name = "relu", .inputs = {"x"}, .outputs = {"y"}});
//   write_onnx("tiny.onnx", model);
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

using OnnxAttribute = std::variant<int64_t, float, std::vector<int64_t>, std::string>;

struct OnnxNode {
  std::string op_type{};  // of the standard domain: "Conv"
  std::string name{};
  std::vector<std::string> inputs{}, outputs{};  // values
  std::vector<std::pair<std::string, OnnxAttribute>> attributes{};
};

// A constant value with as many numbers as the product of its shape: float32 that the model keeps or borrows, or int64.
struct OnnxTensor {
  std::string name{};
  std::vector<int64_t> shape{};  // none: a single number
  std::variant<std::vector<float>, std::span<const float>, std::vector<int64_t>> values{};
};

// A float32 value that the caller gives or gets. A size of -1 is open, which is the batch.
struct OnnxValue {
  std::string name{};
  std::vector<int64_t> shape{};
};

struct OnnxGraph {
  std::string name{};
  std::vector<OnnxNode> nodes{};  // in an order in which they can run
  std::vector<OnnxTensor> initializers{};
  std::vector<OnnxValue> inputs{}, outputs{};
};

struct OnnxModel {
  int64_t opset = 17;
  std::string producer{}, producer_version{};
  OnnxGraph graph{};
  std::map<std::string, std::string> metadata{};
};

// Returns the model as the content of a file. Throws kUnsupported where it would have 2 GiB or more, which no protocol
// buffer message can, and kInvalidArgument where a tensor's shape does not fit its numbers.
[[nodiscard]] std::string encode_onnx(const OnnxModel& model);

// Writes encode_onnx() into a file, whole or not at all.
void write_onnx(const std::string& path, const OnnxModel& model, core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::formats
