// A mix of sources: each global batch comes from one of them, drawn by weight.
//
//   MixedSource source({{.source = photos, .weight = 3}, {.source = drawings}}, {.seed = 1});  // three of four photos
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/sources/combined_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct MixedPart {
  std::shared_ptr<BatchSource> source{};
  double weight = 1;  // its share of the batches, relative to the other weights
};

struct MixedSourceOptions {
  uint64_t seed = 0;
  // false: the mix ends when it draws a source that has ended. true: that source is skipped from then on; the mix ends
  // with its last source.
  bool continue_without_ended = false;
};

// The source of global batch i is a function of (seed, i), and of the sources that have ended before.
class MixedSource : public CombinedSource {
 public:
  // Throws kInvalidArgument where the sources have different numbers of replicas, and for weights that are not positive
  // and finite. Batch sizes may differ.
  MixedSource(const std::vector<MixedPart>& parts, const MixedSourceOptions& options);

  int replicas() const override { return source(0).replicas(); }
  void seek(Position position) override;
  // Saves CombinedSource's state and "ended/i" of each source.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  std::vector<Batch> next_batches() override;
  // Returns the source at `fraction`, in [0, 1), of the cumulated weights of the sources that have not ended.
  [[nodiscard]] size_t drawn(double fraction) const;

  std::vector<double> weights_;
  MixedSourceOptions options_;
  std::vector<bool> ended_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
