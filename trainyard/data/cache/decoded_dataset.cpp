#include "trainyard/data/cache/decoded_dataset.h"

#include <utility>

#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/datasets/record_image.h"

namespace trainyard::data {

DecodedDataset::DecodedDataset(std::shared_ptr<const Dataset> source, const DecodedCacheOptions& options)
    : DatasetDecorator(std::move(source)),
      exif_orientation_(options.exif_orientation),
      store_(options.directory.empty() ? nullptr
                                       : std::make_unique<DecodedStore>(*options.files, options.directory,
                                                                        options.identity, options.exif_orientation)),
      memory_(options.memory_bytes > 0 ? std::make_unique<RecordMemory>(size(), options.memory_bytes) : nullptr) {}

core::Result<Record> DecodedDataset::read(int64_t index) const {
  if (memory_) {
    if (const auto kept = memory_->find(index)) return *kept;
  }
  std::optional<Record> record = store_ ? store_->find(index) : std::nullopt;
  if (!record) {
    auto encoded = source().read(index);
    if (!encoded.ok() || encoded.value().encoding == Encoding::kRawChw) return encoded;
    record = std::move(encoded).value();
    auto image = decode_image(record->bytes, {}, {.exif_orientation = exif_orientation_});
    if (!image.ok()) return image.error().in(record->where);
    record->boxes = record_boxes(*record, exif_orientation_);
    record->image = std::make_shared<const Image>(std::move(image).value());
    record->encoding = Encoding::kDecoded;
    record->bytes = {};
    if (store_) store_->add(index, *record);
  }
  if (memory_) memory_->keep(index, *record);
  return *std::move(record);
}

}  // namespace trainyard::data
