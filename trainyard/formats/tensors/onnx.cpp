#include "trainyard/formats/tensors/onnx.h"

#include <functional>
#include <numeric>
#include <type_traits>

#include <fmt/format.h>
#include <protozero/pbf_writer.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/output_path.h"

namespace trainyard::formats {
namespace {

using protozero::pbf_writer;

// IR_VERSION_2021_7_30, which came with opset 15 and is the oldest that allows 17.
constexpr int64_t kIrVersion = 8;
constexpr size_t kMaxMessageBytes = (size_t{1} << 31) - 1;

enum ModelField : uint32_t {
  kIr = 1,
  kProducer = 2,
  kProducerVersion = 3,
  kGraph = 7,
  kOpsetImport = 8,
  kMetadata = 14
};
constexpr uint32_t kOpsetVersion = 2;
enum EntryField : uint32_t { kKey = 1, kValue = 2 };
enum GraphField : uint32_t { kNode = 1, kGraphName = 2, kInitializer = 5, kGraphInput = 11, kGraphOutput = 12 };
enum OnnxNodeField : uint32_t { kNodeInput = 1, kNodeOutput = 2, kNodeName = 3, kOpType = 4, kAttribute = 5 };
enum AttributeField : uint32_t {
  kAttributeName = 1,
  kFloat = 2,
  kInt = 3,
  kString = 4,
  kInts = 8,
  kAttributeType = 20
};
enum AttributeType : int32_t { kTypeFloat = 1, kTypeInt = 2, kTypeString = 3, kTypeInts = 7 };
enum OnnxTensorField : uint32_t { kDims = 1, kDataType = 2, kTensorName = 8, kRawData = 9 };
enum DataType : int32_t { kElementFloat = 1, kElementUint8 = 2, kElementInt8 = 3, kElementInt64 = 7 };
enum OnnxValueField : uint32_t { kValueName = 1, kValueType = 2 };
constexpr uint32_t kTensorType = 1;
enum TensorTypeField : uint32_t { kElementType = 1, kShape = 2 };
constexpr uint32_t kDimension = 1;
enum DimensionField : uint32_t { kSize = 1, kSymbol = 2 };

void encode_attribute(const std::string& name, const OnnxAttribute& attribute, pbf_writer& node) {
  pbf_writer message(node, kAttribute);
  message.add_string(kAttributeName, name);
  if (const auto* number = std::get_if<int64_t>(&attribute)) {
    message.add_int64(kInt, *number);
    message.add_enum(kAttributeType, kTypeInt);
  } else if (const auto* real = std::get_if<float>(&attribute)) {
    message.add_float(kFloat, *real);
    message.add_enum(kAttributeType, kTypeFloat);
  } else if (const auto* text = std::get_if<std::string>(&attribute)) {
    message.add_bytes(kString, *text);
    message.add_enum(kAttributeType, kTypeString);
  } else {
    for (const int64_t each : std::get<std::vector<int64_t>>(attribute)) message.add_int64(kInts, each);
    message.add_enum(kAttributeType, kTypeInts);
  }
}

void encode_node(const OnnxNode& node, pbf_writer& graph) {
  pbf_writer message(graph, kNode);
  for (const std::string& input : node.inputs) message.add_string(kNodeInput, input);
  for (const std::string& output : node.outputs) message.add_string(kNodeOutput, output);
  message.add_string(kNodeName, node.name);
  message.add_string(kOpType, node.op_type);
  for (const auto& [name, attribute] : node.attributes) encode_attribute(name, attribute, message);
}

std::span<const std::byte> bytes_of(const OnnxTensor& tensor) {
  return std::visit([](const auto& values) { return std::as_bytes(std::span(values)); }, tensor.values);
}

template <typename Number>
constexpr DataType kElementOf = kElementFloat;
template <>
constexpr DataType kElementOf<int64_t> = kElementInt64;
template <>
constexpr DataType kElementOf<int8_t> = kElementInt8;
template <>
constexpr DataType kElementOf<uint8_t> = kElementUint8;

DataType element_of(const OnnxTensor& tensor) {
  return std::visit([](const auto& values) { return kElementOf<typename std::decay_t<decltype(values)>::value_type>; },
                    tensor.values);
}

void encode_tensor(const OnnxTensor& tensor, pbf_writer& graph) {
  pbf_writer message(graph, kInitializer);
  for (const int64_t size : tensor.shape) message.add_int64(kDims, size);
  message.add_int32(kDataType, element_of(tensor));
  message.add_string(kTensorName, tensor.name);
  const std::span<const std::byte> bytes = bytes_of(tensor);  // little-endian, as this machine
  message.add_bytes(kRawData, reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void encode_value(const OnnxValue& value, uint32_t field, pbf_writer& graph) {
  pbf_writer message(graph, field);
  message.add_string(kValueName, value.name);
  pbf_writer type(message, kValueType);
  pbf_writer tensor(type, kTensorType);
  tensor.add_int32(kElementType, value.is_int64 ? kElementInt64 : kElementFloat);
  pbf_writer shape(tensor, kShape);
  for (const int64_t size : value.shape) {
    pbf_writer dimension(shape, kDimension);
    if (size < 0) {
      dimension.add_string(kSymbol, "batch");
    } else {
      dimension.add_int64(kSize, size);
    }
  }
}

void require_encodable(size_t bytes, const OnnxModel& model) {
  if (bytes <= kMaxMessageBytes) return;
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "an ONNX file cannot hold this model",
                                                    .where = model.graph.name,
                                                    .expected = "less than 2 GiB",
                                                    .actual = fmt::format("{} bytes", bytes),
                                                    .remedy = "write safetensors, which has no such limit"});
}

// The bytes of all initializers, which are nearly all of a model.
size_t checked_bytes(const OnnxGraph& graph) {
  size_t sum = 0;
  for (const OnnxTensor& tensor : graph.initializers) {
    const size_t count = std::visit([](const auto& values) { return values.size(); }, tensor.values);
    const int64_t expected = std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
    if (expected != static_cast<int64_t>(count)) {
      throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a tensor's shape does not fit its numbers",
                                                            .where = graph.name + ", tensor '" + tensor.name + "'",
                                                            .expected = fmt::format("{} numbers", expected),
                                                            .actual = fmt::format("{}", count)});
    }
    sum += bytes_of(tensor).size();
  }
  return sum;
}

}  // namespace

std::string encode_onnx(const OnnxModel& model) {
  const size_t weights = checked_bytes(model.graph);
  require_encodable(weights, model);  // before memory is taken
  std::string content;
  content.reserve(weights + (size_t{1} << 20));
  {
    pbf_writer message(content);
    message.add_int64(kIr, kIrVersion);
    message.add_string(kProducer, model.producer);
    message.add_string(kProducerVersion, model.producer_version);
    pbf_writer(message, kOpsetImport).add_int64(kOpsetVersion, model.opset);
    for (const auto& [key, value] : model.metadata) {
      pbf_writer entry(message, kMetadata);
      entry.add_string(kKey, key);
      entry.add_string(kValue, value);
    }
    pbf_writer graph(message, kGraph);
    for (const OnnxNode& node : model.graph.nodes) encode_node(node, graph);
    graph.add_string(kGraphName, model.graph.name);
    for (const OnnxTensor& tensor : model.graph.initializers) encode_tensor(tensor, graph);
    for (const OnnxValue& value : model.graph.inputs) encode_value(value, kGraphInput, graph);
    for (const OnnxValue& value : model.graph.outputs) encode_value(value, kGraphOutput, graph);
  }
  require_encodable(content.size(), model);
  return content;
}

void write_onnx(const std::string& path, const OnnxModel& model, core::FileSystem& files) {
  core::write_user_output(path, encode_onnx(model), files);
}

}  // namespace trainyard::formats
