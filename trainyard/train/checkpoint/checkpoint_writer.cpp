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

void require_savable(const std::string& name, const at::Tensor& value) {
  if (!value.defined() || value.layout() != at::kStrided || static_cast<size_t>(value.dim()) > kMaxDimensions) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "tensor cannot be saved",
                       .where = name,
                       .expected = fmt::format("a dense tensor of at most {} dimensions", kMaxDimensions),
                       .actual = value.defined() ? "another" : "an undefined one"});
  }
  static_cast<void>(dtype_name(value.scalar_type()));  // throws for a type that is not held
}

void refuse_non_finite(const std::string& name, int64_t global_step, int64_t count, int64_t elements) {
  throw NonFiniteState(
      core::ErrorCode::kCorruptData,
      {.problem = "no checkpoint of values that are not finite",
       .where = fmt::format("step {}, tensor {}", global_step, name),
       .expected = "finite values",
       .actual = fmt::format("{} of {} NaN or infinite", count, elements),
       .remedy = "lower the learning rate or clip gradients; the checkpoints before it are still there"});
}

CheckpointWriter::CheckpointWriter(std::string directory, int64_t global_step, core::FileSystem& files,
                                   const WrittenTensors* same)
    : directory_(std::move(directory)), files_(files), looks_(same == nullptr) {
  manifest_.global_step = global_step;
  if (same != nullptr && link(*same)) {
    linked_ = same;
    return;
  }
  tensors_ = files_.open_write(core::join_path(directory_, kTensorFile));
  tensors_->write(kTensorFileHeader);
}

// Another process may have put other files into its place since it was written.
bool CheckpointWriter::link(const WrittenTensors& same) {
  const std::string path = core::join_path(directory_, kTensorFile);
  if (same.path.empty() || !files_.exists(same.path) || !files_.link_file(same.path, path)) return false;
  const core::FileInfo info = files_.info(path);
  if (info.file_id == same.file_id && info.size == same.bytes) return true;
  files_.remove_file(path);
  return false;
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

void CheckpointWriter::note_linked(const std::string& name, const at::Tensor& value) {
  const size_t place = manifest_.tensors.size();
  const bool same = place < linked_->entries.size() && linked_->entries[place].name == name &&
                    linked_->entries[place].dtype == value.scalar_type() &&
                    linked_->entries[place].shape == value.sizes().vec();
  if (!same) {
    throw core::Error(core::ErrorCode::kInternal,
                      {.problem = "a checkpoint is linked to other tensors", .where = name, .actual = linked_->path});
  }
  manifest_.tensors.push_back(linked_->entries[place]);
  manifest_.tensor_file_bytes += linked_->entries[place].bytes;
}

void CheckpointWriter::tensor(const std::string& name, const at::Tensor& value) {
  claim(name);
  require_savable(name, value);
  if (linked_ != nullptr) return note_linked(name, value);
  const at::Tensor plain = value.detach().cpu().contiguous();
  const std::span bytes(static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes());
  TensorEntry entry{.name = name,
                    .dtype = plain.scalar_type(),
                    .shape = plain.sizes().vec(),
                    .offset = manifest_.tensor_file_bytes,
                    .bytes = bytes.size()};
  const bool looks = looks_ && must_be_finite(name, entry.dtype, plain.dim());
  int64_t not_finite = 0;
  // Chunk by chunk: what the checksum has brought into the cache is looked at there.
  for (size_t begin = 0; begin < bytes.size(); begin += kWriteChunkBytes) {
    const std::span chunk = bytes.subspan(begin, std::min(kWriteChunkBytes, bytes.size() - begin));
    entry.checksum = core::crc32c(chunk, entry.checksum);
    if (looks) not_finite += count_non_finite(entry.dtype, chunk);
    core::count_work();
  }
  if (not_finite > 0) refuse_non_finite(name, manifest_.global_step, not_finite, plain.numel());
  tensors_->write(bytes);
  manifest_.tensor_file_bytes += bytes.size();
  manifest_.tensors.push_back(std::move(entry));
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
  if (tensors_) {
    tensors_->sync();
    tensors_->close();
  }
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

WrittenTensors CheckpointWriter::written() const {
  const std::string path = core::join_path(directory_, kTensorFile);
  return {.path = path,
          .file_id = files_.info(path).file_id,
          .entries = manifest_.tensors,
          .bytes = manifest_.tensor_file_bytes};
}

}  // namespace trainyard::train
