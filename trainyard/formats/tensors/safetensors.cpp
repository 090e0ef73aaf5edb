#include "trainyard/formats/tensors/safetensors.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/output_path.h"
#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/tensors/safetensors_header.h"

namespace trainyard::formats {
namespace {

constexpr uint64_t kLengthBytes = 8;
// The format's own limit: headers of the largest models there are have some megabytes.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

core::Error corrupt_safetensors(const core::ReadableFile& file, std::string_view tensor, std::string problem,
                                std::string expected = "", std::string actual = "") {
  return safetensors_error(file.path(), tensor, std::move(problem), std::move(expected), std::move(actual));
}

}  // namespace

std::vector<StoredTensor> read_safetensors_header(const core::ReadableFile& file,
                                                  std::map<std::string, std::string>* metadata) {
  char length_bytes[kLengthBytes] = {};
  if (file.size() < kLengthBytes) throw corrupt_safetensors(file, "", "file is too short for a safetensors header");
  file.read_at(0, std::as_writable_bytes(std::span(length_bytes)));
  const auto length = load_little_endian<uint64_t>(length_bytes);
  if (length > file.size() - kLengthBytes || length > kMaxHeaderBytes) {
    throw corrupt_safetensors(file, "", "safetensors header is longer than its file",
                              fmt::format("at most {} bytes", std::min(file.size() - kLengthBytes, kMaxHeaderBytes)),
                              fmt::format("{}", length));
  }
  std::string text(length, '\0');
  file.read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));
  std::vector<SafetensorsEntry> entries = parse_safetensors_header(text, file.path(), metadata);
  std::stable_sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const uint64_t data = kLengthBytes + length, data_bytes = file.size() - data;
  uint64_t place = 0;
  std::vector<StoredTensor> tensors;
  for (SafetensorsEntry& entry : entries) {
    StoredTensor& tensor = entry.tensor;
    if (entry.begin != place) {
      throw corrupt_safetensors(file, tensor.name,
                                entry.begin < place ? "tensor overlaps another" : "tensor leaves a gap",
                                fmt::format("data from {}", place), fmt::format("{}", entry.begin));
    }
    tensor.offset = data + entry.begin;
    if (entry.end < entry.begin || entry.end > data_bytes) {
      throw corrupt_safetensors(file, tensor.name, "tensor ends behind the file", fmt::format("at most {}", data_bytes),
                                fmt::format("{}", entry.end));
    }
    check_stored_tensor(tensor, tensor.offset, data + entry.end, file.path());
    const uint64_t bytes = static_cast<uint64_t>(tensor.count()) * tensor_type_bytes(tensor.type);
    if (bytes != entry.end - entry.begin) {
      throw corrupt_safetensors(file, tensor.name, "tensor's shape and place disagree", fmt::format("{} bytes", bytes),
                                fmt::format("{}", entry.end - entry.begin));
    }
    place = entry.end;
    tensors.push_back(std::move(tensor));
  }
  if (place != data_bytes) {
    throw corrupt_safetensors(file, "", "safetensors file goes on behind its last tensor",
                              fmt::format("{} bytes", data + place), fmt::format("{}", file.size()));
  }
  return tensors;
}

void write_safetensors(const std::string& path, std::span<const TypedTensor> tensors,
                       const std::map<std::string, std::string>& metadata, core::FileSystem& files) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t place = 0;
  for (const TypedTensor& tensor : tensors) {
    const StoredTensor stored{.name = tensor.name, .type = tensor.type, .shape = tensor.shape};
    const uint64_t expected = static_cast<uint64_t>(stored.count()) * tensor_type_bytes(tensor.type);
    const std::string_view type = safetensors_type_name(tensor.type);
    const char* const problem = header.contains(tensor.name)      ? "a tensor's name comes twice"
                                : expected != tensor.bytes.size() ? "a tensor's shape does not fit its numbers"
                                : type.empty()                    ? "safetensors has no such type of numbers"
                                                                  : nullptr;
    if (problem != nullptr) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = problem,
                         .where = tensor_place(path, tensor.name),
                         .expected = fmt::format("{} bytes, {}", expected, describe(stored)),
                         .actual = fmt::format("{} bytes", tensor.bytes.size())});
    }
    const uint64_t end = place + expected;
    header[tensor.name] = {{"dtype", type}, {"shape", tensor.shape}, {"data_offsets", {place, end}}};
    place = end;
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the numbers are aligned
  std::string content;
  content.reserve(kLengthBytes + text.size() + place);
  append_little_endian<uint64_t>(content, text.size());
  content += text;
  for (const TypedTensor& tensor : tensors) {
    content.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  core::write_user_output(path, content, files);
}

void write_safetensors(const std::string& path, std::span<const FloatTensor> tensors,
                       const std::map<std::string, std::string>& metadata, core::FileSystem& files) {
  std::vector<TypedTensor> typed;
  typed.reserve(tensors.size());
  for (const FloatTensor& tensor : tensors) {
    typed.push_back({.name = tensor.name, .shape = tensor.shape, .bytes = std::as_bytes(tensor.values)});
  }
  write_safetensors(path, typed, metadata, files);
}

}  // namespace trainyard::formats
