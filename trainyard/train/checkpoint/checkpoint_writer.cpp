#include "trainyard/train/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/work_count.h"
#include "trainyard/core/files/crc32c.h"
#include "trainyard/train/checkpoint/checkpoint_finite.h"

namespace trainyard::train {

// Tensors are written as they lie in memory, and the format says little-endian.
static_assert(std::endian::native == std::endian::little);

namespace {
constexpr size_t kWriteChunkBytes = size_t{256} << 10;
}  // namespace

CheckpointWriter::CheckpointWriter(std::string directory, int64_t global_step, core::FileSystem& files)
    : directory_(std::move(directory)),
      files_(files),
      tensors_(files.open_write(core::join_path(directory_, kTensorFile))) {
  manifest_.global_step = global_step;
  tensors_->write(kTensorFileHeader);
}

void CheckpointWriter::claim(const std::string& name) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "bad name of saved state",
                                                          .where = name.substr(0, 80),
                                                          .expected = fmt::format("1 .. {} bytes", kMaxNameBytes),
                                                          .actual = fmt::format("{}", name.size())});
  }
  if (!names_.insert(name).second) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "two objects save state under one name", .where = name, .remedy = "give each a prefix of its own"});
  }
}

void CheckpointWriter::tensor(const std::string& name, const at::Tensor& value) {
  claim(name);
  if (!value.defined() || value.layout() != at::kStrided || static_cast<size_t>(value.dim()) > kMaxDimensions) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "tensor cannot be saved",
                       .where = name,
                       .expected = fmt::format("a dense tensor of at most {} dimensions", kMaxDimensions),
                       .actual = value.defined() ? "another" : "an undefined one"});
  }
  static_cast<void>(dtype_name(value.scalar_type()));  // throws for a type that is not held
  const at::Tensor plain = value.detach().cpu().contiguous();
  const std::span bytes(static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes());
  TensorEntry entry{.name = name,
                    .dtype = plain.scalar_type(),
                    .shape = plain.sizes().vec(),
                    .offset = manifest_.tensor_file_bytes,
                    .bytes = bytes.size()};
  const bool looks = must_be_finite(name, entry.dtype, plain.dim());
  int64_t not_finite = 0;
  // Chunk by chunk: what the checksum has brought into the cache is looked at there.
  for (size_t begin = 0; begin < bytes.size(); begin += kWriteChunkBytes) {
    const std::span chunk = bytes.subspan(begin, std::min(kWriteChunkBytes, bytes.size() - begin));
    entry.checksum = core::crc32c(chunk, entry.checksum);
    if (looks) not_finite += count_non_finite(entry.dtype, chunk);
    core::count_work();
  }
  if (not_finite > 0) refuse_non_finite(entry, not_finite);
  tensors_->write(bytes);
  manifest_.tensor_file_bytes += bytes.size();
  manifest_.tensors.push_back(std::move(entry));
}

void CheckpointWriter::refuse_non_finite(const TensorEntry& entry, int64_t count) const {
  throw NonFiniteState(
      core::ErrorCode::kCorruptData,
      {.problem = "no checkpoint of values that are not finite",
       .where = fmt::format("step {}, tensor {}", manifest_.global_step, entry.name),
       .expected = "finite values",
       .actual = fmt::format("{} of {} NaN or infinite", count, entry.bytes / c10::elementSize(entry.dtype)),
       .remedy = "lower the learning rate or clip gradients; the checkpoints before it are still there"});
}

void CheckpointWriter::integer(const std::string& name, int64_t value) {
  claim(name);
  manifest_.values[name] = value;
}

void CheckpointWriter::real(const std::string& name, double value) {
  claim(name);
  manifest_.values[name] = value;
}

void CheckpointWriter::text(const std::string& name, std::string_view value) {
  claim(name);
  manifest_.values[name] = std::string(value);
}

void CheckpointWriter::finish(const CheckpointIdentity& identity) {
  tensors_->sync();
  tensors_->close();
  manifest_.identity = identity;
  const std::string text = encode_manifest(manifest_);
  if (text.size() > kMaxManifestBytes) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "too much state that is no tensor",
                       .where = directory_,
                       .expected = fmt::format("a manifest of at most {} bytes", kMaxManifestBytes),
                       .actual = fmt::format("{}", text.size()),
                       .remedy = "save long texts as uint8 tensors"});
  }
  const auto file = files_.open_write(core::join_path(directory_, kManifestFile));
  file->write(text);
  file->sync();
  file->close();
  files_.sync_directory(directory_);
}

}  // namespace trainyard::train
