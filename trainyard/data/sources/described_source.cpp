#include "trainyard/data/sources/described_source.h"

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/combined_source.h"

namespace trainyard::data {
namespace {

bool same_description(const SourceDescription& a, const SourceDescription& b) {
  return a.classes == b.classes && a.transform == b.transform && a.training == b.training &&
         same_evaluation_input(a.input, b.input);
}

std::optional<SourceDescription> common_description(const CombinedSource& combined) {
  std::optional<SourceDescription> common;
  for (size_t i = 0; i < combined.size(); ++i) {
    const std::optional<SourceDescription> said = description_of(combined.part(i));
    if (!said) continue;
    if (common && !same_description(*common, *said)) return std::nullopt;
    common = said;
  }
  return common;
}

}  // namespace

bool same_evaluation_input(const TransformOptions& a, const TransformOptions& b) {
  return a.height == b.height && a.width == b.width && a.resize_method == b.resize_method &&
         a.resize_antialias == b.resize_antialias && a.resize_half_pixel_centers == b.resize_half_pixel_centers &&
         a.eval_resize_size == b.eval_resize_size && a.eval_central_part == b.eval_central_part &&
         a.eval_scaled_decode == b.eval_scaled_decode && a.resize_convention == b.resize_convention &&
         a.exif_orientation == b.exif_orientation && a.normalization == b.normalization;
}

std::optional<SourceDescription> description_of(const BatchSource& source) {
  if (const auto* const described = find_source<DescribedSource>(source)) return described->description();
  if (const auto* const combined = find_source<CombinedSource>(source)) return common_description(*combined);
  return std::nullopt;
}

int64_t batches_in_epoch(const BatchSource& source) {
  if (const auto* const sized = dynamic_cast<const SizedSource*>(&source)) return sized->batches_per_epoch();
  const auto* const around = dynamic_cast<const SourceDecorator*>(&source);
  if (around == nullptr || around->inner() == nullptr) return 0;
  const BatchSource& inner = *around->inner();
  const bool same_batches = inner.replicas() == source.replicas() && inner.batch_size() == source.batch_size();
  return same_batches ? batches_in_epoch(inner) : 0;
}

}  // namespace trainyard::data
