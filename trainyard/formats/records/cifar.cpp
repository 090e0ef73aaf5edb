#include "trainyard/formats/records/cifar.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/formats/containers/pickle.h"

namespace trainyard::formats {
namespace {

// The published files have 31 MB.
constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
constexpr size_t kRecordBytes = 1 + kCifarImageBytes;
constexpr char kPickleProtocol = '\x80';  // the first byte of a pickle; of a binary batch it is a label

core::Error corrupt_cifar(std::string problem, std::string where, std::string expected, std::string actual) {
  return {core::ErrorCode::kCorruptData,
          {.problem = std::move(problem),
           .where = std::move(where),
           .expected = std::move(expected),
           .actual = std::move(actual),
           .remedy = "use a batch file of CIFAR-10 as it is published"}};
}

void check_label(int64_t label, size_t image, std::string where) {
  if (label >= 0 && label < kCifar10Classes) return;
  throw corrupt_cifar(fmt::format("label of image {} is out of range", image), std::move(where),
                      fmt::format("0 to {}", kCifar10Classes - 1), fmt::format("{}", label));
}

CifarBatch parse_binary(std::string_view content) {
  if (content.empty() || content.size() % kRecordBytes != 0) {
    throw corrupt_cifar("file is no binary batch of CIFAR-10", "", fmt::format("a multiple of {} bytes", kRecordBytes),
                        fmt::format("{}", content.size()));
  }
  CifarBatch batch;
  const size_t count = content.size() / kRecordBytes;
  batch.labels.reserve(count);
  batch.pixels.reserve(count * kCifarImageBytes);
  for (size_t image = 0; image < count; ++image) {
    const std::string_view record = content.substr(image * kRecordBytes, kRecordBytes);
    const auto label = static_cast<uint8_t>(record[0]);
    check_label(label, image, fmt::format("offset {}", image * kRecordBytes));
    batch.labels.push_back(label);
    batch.pixels.insert(batch.pixels.end(), record.begin() + 1, record.end());
  }
  return batch;
}

const PickleValue& entry(const Pickle& pickle, std::string_view key, PickleValue::Kind kind) {
  const PickleValue* value = pickle.root().find(key);
  if (value == nullptr || value->kind != kind) {
    throw corrupt_cifar("pickle is no batch of CIFAR-10", fmt::format("entry '{}'", key),
                        kind == PickleValue::Kind::kArray ? "an array" : "a list",
                        value == nullptr ? "no such entry" : "another value");
  }
  return *value;
}

CifarBatch parse_pickle(std::string_view content) {
  const Pickle pickle = Pickle::parse(content);
  const PickleValue& data = entry(pickle, "data", PickleValue::Kind::kArray);
  const PickleValue& labels = entry(pickle, "labels", PickleValue::Kind::kList);
  const size_t count = labels.items.size();
  if (count == 0 || data.items.size() != 2 || data.items[0]->integer != static_cast<int64_t>(count) ||
      data.items[1]->integer != static_cast<int64_t>(kCifarImageBytes)) {
    std::string shape;
    for (const PickleValue* size : data.items) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", size->integer);
    throw corrupt_cifar("pickle is no batch of CIFAR-10", "entry 'data'",
                        fmt::format("shape [{}, {}] for {} labels", count, kCifarImageBytes, count),
                        fmt::format("[{}]", shape));
  }
  CifarBatch batch;
  batch.labels.reserve(count);
  for (const PickleValue* label : labels.items) {
    check_label(label->kind == PickleValue::Kind::kInteger ? label->integer : -1, batch.labels.size(),
                "entry 'labels'");
    batch.labels.push_back(static_cast<uint8_t>(label->integer));
  }
  batch.pixels.assign(data.text.begin(), data.text.end());
  return batch;
}

}  // namespace

std::vector<std::string> find_cifar10_batches(core::FileSystem& files, const std::string& directory, CifarSplit split) {
  std::vector<std::string> names = {"test_batch"};
  if (split == CifarSplit::kTraining) {
    names = {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"};
  }
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    std::string path = core::join_path(directory, name);
    if (!files.exists(path)) path += ".bin";
    if (!files.exists(path)) {
      throw core::Error(core::ErrorCode::kNotFound,
                        {.problem = "CIFAR-10 batch is missing",
                         .where = directory,
                         .expected = fmt::format("{0} or {0}.bin", name),
                         .actual = "neither",
                         .remedy = "unpack cifar-10-python.tar.gz or cifar-10-binary.tar.gz there"});
    }
    paths.push_back(std::move(path));
  }
  return paths;
}

CifarBatch parse_cifar10_batch(std::string_view content) {
  return content.starts_with(kPickleProtocol) ? parse_pickle(content) : parse_binary(content);
}

CifarBatch read_cifar10_batch(core::FileSystem& files, const std::string& path) {
  const std::string content = files.read_file(path, kMaxFileBytes);
  try {
    return parse_cifar10_batch(content);
  } catch (const core::Error& error) {
    throw error.in(path);
  }
}

}  // namespace trainyard::formats
