#include "trainyard/train/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "trainyard/core/base/registry.h"
#include "trainyard/core/files/crc32c.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/checkpoint/checkpoint_finite.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"
#include "trainyard/train/checkpoint/name_list.h"

namespace trainyard::train {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr size_t kReadChunkBytes = size_t{1} << 20;

// The result of `work` on a file of the checkpoint. A checkpoint without the file, or with one that ends early or is
// too long, is damaged.
template <typename Work>
auto with_file(const std::string& directory, std::string_view name, core::FileSystem& files, Work work) {
  const std::string path = core::join_path(directory, name);
  try {
    return work(path);
  } catch (const core::Error& error) {
    if (error.code() == core::ErrorCode::kCorruptData && !is_damage(error)) {
      throw damaged_checkpoint(error.detail().problem, path, error.detail().expected, error.detail().actual);
    }
    if (error.code() != core::ErrorCode::kNotFound || !files.exists(directory)) throw;
    throw damaged_checkpoint("a file of the checkpoint is missing", path, "a file", "none");
  }
}

void require_length(const Manifest& manifest, const std::string& path, uint64_t bytes) {
  if (bytes == manifest.tensor_file_bytes) return;
  throw damaged_checkpoint("tensor file is cut off or has grown", path,
                           fmt::format("{} bytes", manifest.tensor_file_bytes), fmt::format("{}", bytes));
}

}  // namespace

Manifest read_manifest(const std::string& directory, core::FileSystem& files) {
  const auto read = [&](const std::string& path) {
    return decode_manifest(files.read_file(path, kMaxManifestBytes), path);
  };
  Manifest manifest = with_file(directory, kManifestFile, files, read);
  const std::string called = core::base_name(directory);
  const std::optional<CheckpointName> name = parse_checkpoint_name(called);
  if (name && name->step && *name->step != manifest.global_step) {
    throw damaged_checkpoint("the checkpoint is of another step than its name says", directory,
                             fmt::format("step {}", *name->step), fmt::format("{}", manifest.global_step));
  }
  return manifest;
}

void require_tensor_file(const Manifest& manifest, const std::string& directory, core::FileSystem& files) {
  const auto size = [&](const std::string& path) { return files.info(path).size; };
  require_length(manifest, core::join_path(directory, kTensorFile), with_file(directory, kTensorFile, files, size));
}

CheckpointReader::CheckpointReader(const std::string& directory, core::FileSystem& files, Checksums checksums)
    : CheckpointReader(directory, read_manifest(directory, files), files, checksums) {}

CheckpointReader::CheckpointReader(const std::string& directory, Manifest manifest, core::FileSystem& files,
                                   Checksums checksums)
    : directory_(directory), checksums_(checksums), manifest_(std::move(manifest)) {
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) tensors_[manifest_.tensors[i].name] = i;
  file_ = with_file(directory, kTensorFile, files, [&](const std::string& path) { return files.open_read(path); });
  verify_tensor_file();
  static_cast<void>(read_checkpoint_facts(manifest_, directory));
}

void CheckpointReader::verify_tensor_file() const {
  require_length(manifest_, file_->path(), file_->size());
  std::string header(kTensorFileHeader.size(), '\0');
  file_->read_at(0, std::as_writable_bytes(std::span(header)));
  if (header != kTensorFileHeader) {
    throw damaged_checkpoint("tensor file has another header", file_->path(), "magic TRAINYRD, version 1", "another");
  }
  if (checksums_ == Checksums::kIgnore) return;
  std::vector<std::byte> buffer(std::min<uint64_t>(kReadChunkBytes, manifest_.tensor_file_bytes));
  std::vector<std::string> not_finite;
  for (const TensorEntry& entry : manifest_.tensors) {
    const bool looks = must_be_finite(entry.name, entry.dtype, static_cast<int64_t>(entry.shape.size()));
    uint32_t checksum = 0;
    int64_t count = 0;
    for (uint64_t done = 0; done < entry.bytes;) {
      const std::span chunk(buffer.data(), std::min<uint64_t>(buffer.size(), entry.bytes - done));
      file_->read_at(entry.offset + done, chunk);
      checksum = core::crc32c(chunk, checksum);
      if (looks) count += count_non_finite(entry.dtype, chunk);
      done += chunk.size();
    }
    check(entry, checksum);
    if (count > 0) {
      not_finite.push_back(
          fmt::format("{} ({} of {})", entry.name, count, entry.bytes / c10::elementSize(entry.dtype)));
    }
  }
  if (not_finite.empty()) return;
  throw core::Error(core::ErrorCode::kCorruptData,
                    {.problem = "checkpoint holds NaN or infinity",
                     .where = directory_,
                     .expected = "finite values",
                     .actual = fmt::format("{} tensors with others: {}", not_finite.size(), first_names(not_finite)),
                     .remedy = "use an earlier checkpoint; --ignore_damaged_checkpoints goes on from the newest one "
                               "that is sound"});
}

void CheckpointReader::check(const TensorEntry& entry, uint32_t checksum) const {
  if (checksums_ == Checksums::kIgnore || checksum == entry.checksum) return;
  throw damaged_checkpoint("tensor checksum differs",
                           fmt::format("{}, tensor {} at offset {}", file_->path(), entry.name, entry.offset),
                           fmt::format("crc32c 0x{:08x}", entry.checksum), fmt::format("0x{:08x}", checksum));
}

void CheckpointReader::read(const TensorEntry& entry, void* destination) const {
  const std::span bytes(static_cast<std::byte*>(destination), entry.bytes);
  file_->read_at(entry.offset, bytes);
  check(entry, core::crc32c(bytes));  // again: the medium may have given other bytes this time
}

std::string CheckpointReader::describe(const std::string& name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) {
    const TensorEntry& entry = manifest_.tensors[found->second];
    return describe_tensor(entry.dtype, entry.shape);
  }
  const auto found = manifest_.values.find(name);
  if (found == manifest_.values.end()) fail_missing(name, "entry");
  constexpr std::array<const char*, 3> kKinds{"integer", "real", "text"};
  return kKinds[found->second.index()];
}

std::vector<std::string> CheckpointReader::names(std::string_view prefix) const {
  std::vector<std::string> result;
  for (const auto& [name, place] : tensors_) {
    if (name.starts_with(prefix)) result.push_back(name);
  }
  for (const auto& [name, value] : manifest_.values) {
    if (name.starts_with(prefix)) result.push_back(name);
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<std::string> CheckpointReader::unread() const {
  std::vector<std::string> result = names();
  std::erase_if(result, [&](const std::string& name) { return read_.contains(name); });
  return result;
}

void CheckpointReader::fail_missing(const std::string& name, std::string_view kind) const {
  if (has(name)) {
    throw core::Error(core::ErrorCode::kCorruptData, {.problem = "checkpoint entry is of another kind",
                                                      .where = fmt::format("{}, {}", directory_, name),
                                                      .expected = std::string(kind),
                                                      .actual = describe(name),
                                                      .remedy = "load the checkpoint into the model that wrote it"});
  }
  const std::string nearest = core::nearest_name(name, names());
  throw core::Error(core::ErrorCode::kCorruptData,
                    {.problem = "checkpoint lacks an entry",
                     .where = directory_,
                     .expected = fmt::format("{} {}", kind, name),
                     .actual = nearest.empty() ? "none of a similar name" : "nearest: " + nearest,
                     .remedy = "load the checkpoint into the model that wrote it"});
}

const TensorEntry& CheckpointReader::entry(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail_missing(name, "tensor");
  read_.insert(name);
  return manifest_.tensors[found->second];
}

void CheckpointReader::tensor(const std::string& name, at::Tensor& destination) const {
  const TensorEntry& saved = entry(name);
  if (destination.scalar_type() != saved.dtype || destination.sizes() != at::IntArrayRef(saved.shape)) {
    throw core::Error(core::ErrorCode::kCorruptData,
                      {.problem = "checkpoint tensor has another shape or type",
                       .where = fmt::format("{}, tensor {}", directory_, name),
                       .expected = describe_tensor(destination.scalar_type(), destination.sizes().vec()),
                       .actual = describe_tensor(saved.dtype, saved.shape),
                       .remedy = "load the checkpoint into the model that wrote it"});
  }
  if (destination.is_cpu() && destination.is_contiguous()) {
    read(saved, destination.mutable_data_ptr());
  } else {
    destination.detach().copy_(tensor(name));
  }
}

at::Tensor CheckpointReader::tensor(const std::string& name) const {
  const TensorEntry& saved = entry(name);
  at::Tensor result = at::empty(saved.shape, saved.dtype);
  read(saved, result.mutable_data_ptr());
  return result;
}

template <typename T>
const T& CheckpointReader::value(const std::string& name, std::string_view kind) const {
  const auto found = manifest_.values.find(name);
  if (found == manifest_.values.end() || !std::holds_alternative<T>(found->second)) fail_missing(name, kind);
  read_.insert(name);
  return std::get<T>(found->second);
}

int64_t CheckpointReader::integer(const std::string& name) const {
  return value<int64_t>(name, "integer");
}
double CheckpointReader::real(const std::string& name) const {
  return value<double>(name, "real");
}
std::string CheckpointReader::text(const std::string& name) const {
  return value<std::string>(name, "text");
}

void CheckpointReader::copy(const std::string& name, core::StateWriter& writer, const std::string& as) const {
  const auto found = manifest_.values.find(name);
  if (found == manifest_.values.end()) return writer.tensor(as, tensor(name));
  switch (found->second.index()) {
    case 0:
      return writer.integer(as, integer(name));
    case 1:
      return writer.real(as, real(name));
    default:
      return writer.text(as, text(name));
  }
}

}  // namespace trainyard::train
