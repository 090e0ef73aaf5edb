#include "trainyard/data/decoded_dataset.h"

#include <utility>

#include "trainyard/data/decode.h"

namespace trainyard::data {

DecodedDataset::DecodedDataset(std::shared_ptr<const Dataset> source, const DecodedCacheOptions& options)
    : source_(std::move(source)),
      memory_bytes_(options.memory_bytes),
      exif_orientation_(options.exif_orientation),
      store_(options.directory.empty()
                 ? nullptr
                 : std::make_unique<DecodedStore>(*options.files, options.directory, options.identity)) {
  if (memory_bytes_ > 0) kept_.resize(source_->size());
}

std::shared_ptr<const Record> DecodedDataset::in_memory(int64_t index) const {
  if (memory_bytes_ == 0) return nullptr;
  std::lock_guard lock(mutex_);
  return kept_[index];
}

void DecodedDataset::keep_in_memory(int64_t index, const Record& record) const {
  const auto bytes = static_cast<int64_t>(record.image->pixels.size());
  std::lock_guard lock(mutex_);
  if (used_bytes_ + bytes > memory_bytes_ || kept_[index] != nullptr) return;
  used_bytes_ += bytes;
  kept_[index] = std::make_shared<const Record>(record);
}

core::Result<Record> DecodedDataset::read(int64_t index) const {
  if (const auto kept = in_memory(index)) return *kept;
  std::optional<Record> record = store_ ? store_->find(index) : std::nullopt;
  if (!record) {
    auto encoded = source_->read(index);
    if (!encoded.ok() || encoded.value().encoding == Encoding::kRawChw) return encoded;
    record = std::move(encoded).value();
    auto image = decode_image(record->bytes, {}, {.exif_orientation = exif_orientation_});
    if (!image.ok()) return image.error().in(record->where);
    record->image = std::make_shared<const Image>(std::move(image).value());
    record->encoding = Encoding::kDecoded;
    record->bytes = {};
    if (store_) store_->add(index, *record);
  }
  if (memory_bytes_ > 0) keep_in_memory(index, *record);
  return *std::move(record);
}

}  // namespace trainyard::data
