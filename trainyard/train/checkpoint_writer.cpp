#include "trainyard/train/checkpoint_writer.h"

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/crc32c.h"

namespace trainyard::train {

// Tensors are written as they lie in memory, and the format says little-endian.
static_assert(std::endian::native == std::endian::little);

CheckpointWriter::CheckpointWriter(std::string directory, core::FileSystem& files)
    : directory_(std::move(directory)),
      files_(files),
      tensors_(files.open_write(core::join_path(directory_, kTensorFile))) {
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
  dtype_name(value.scalar_type());  // throws for a type that is not held
  const at::Tensor plain = value.detach().cpu().contiguous();
  const std::span bytes(static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes());
  tensors_->write(bytes);
  manifest_.tensors.push_back({.name = name,
                               .dtype = plain.scalar_type(),
                               .shape = plain.sizes().vec(),
                               .offset = manifest_.tensor_file_bytes,
                               .bytes = bytes.size(),
                               .checksum = core::crc32c(bytes)});
  manifest_.tensor_file_bytes += bytes.size();
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

void CheckpointWriter::finish(int64_t global_step, const CheckpointIdentity& identity) {
  tensors_->sync();
  tensors_->close();
  manifest_.global_step = global_step;
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
