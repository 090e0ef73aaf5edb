// ONNX models: a graph of standard operators with its weights, as the protocol buffer messages of onnx.proto
// (docs/formats/onnx.md). It only writes them.
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
  std::string op_type{};  // operator of the standard domain: "Conv"
  std::string name{};
  std::vector<std::string> inputs{}, outputs{};  // values
  std::vector<std::pair<std::string, OnnxAttribute>> attributes{};
};

// A constant value with as many numbers as the product of its shape: float32 that the model owns or refers to, or
// integers of 64 or 8 bits.
struct OnnxTensor {
  std::string name{};
  std::vector<int64_t> shape{};  // none: a single number
  std::variant<std::vector<float>, std::span<const float>, std::vector<int64_t>, std::vector<int8_t>,
               std::vector<uint8_t>>
      values{};
};

// A float32 or int64 input or output of the model. A size of -1 is dynamic: the batch.
struct OnnxValue {
  std::string name{};
  std::vector<int64_t> shape{};
  bool is_int64 = false;
};

struct OnnxGraph {
  std::string name{};
  std::vector<OnnxNode> nodes{};  // in topological order
  std::vector<OnnxTensor> initializers{};
  std::vector<OnnxValue> inputs{}, outputs{};
};

struct OnnxModel {
  int64_t opset = 17;
  std::string producer{}, producer_version{};
  OnnxGraph graph{};
  std::map<std::string, std::string> metadata{};
};

// Returns the model as the content of a file. Throws kUnsupported when it would have 2 GiB or more, which protocol
// buffer messages cannot have, and kInvalidArgument when a tensor's shape does not fit its numbers.
[[nodiscard]] std::string encode_onnx(const OnnxModel& model);

// Writes encode_onnx() into a file atomically.
void write_onnx(const std::string& path, const OnnxModel& model, core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::formats
