// A small state to save in tests: all its numbers tell which version of it they belong to, so that a mixture of two
// versions is seen.
#pragma once

#include <string>

#include <ATen/ops/full.h>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::train {

class VersionedState : public core::Stateful {
 public:
  explicit VersionedState(int64_t version = 0, int64_t elements = 1000) : version_(version), elements_(elements) {}

  int64_t version() const { return version_; }

  void save(core::StateWriter& writer) const override {
    writer.tensor("weights", at::full({elements_}, version_, at::kFloat));
    writer.tensor("momentum", at::full({3, 5}, version_, at::kDouble));
    writer.integer("step", version_);
    writer.text("note", "version " + std::to_string(version_));
  }

  // Throws kCorruptData when the parts are not of one version.
  void load(const core::StateReader& reader) override {
    version_ = reader.integer("step");
    const at::Tensor weights = reader.tensor("weights");
    const at::Tensor momentum = reader.tensor("momentum");
    bool same = reader.text("note") == "version " + std::to_string(version_);
    for (int64_t i = 0; i < weights.numel(); ++i) {
      same = same && weights.const_data_ptr<float>()[i] == static_cast<float>(version_);
    }
    for (int64_t i = 0; i < momentum.numel(); ++i) {
      same = same && momentum.const_data_ptr<double>()[i] == static_cast<double>(version_);
    }
    if (!same) throw core::Error(core::ErrorCode::kCorruptData, "a mixture of versions");
  }

 private:
  int64_t version_;
  int64_t elements_;
};

// The version in the latest checkpoint. Throws what finding and loading it throws.
inline int64_t latest_version(const std::string& directory, core::FileSystem& files = core::local_file_system()) {
  VersionedState state;
  load_checkpoint(find_checkpoint(directory, files), nullptr, state, files);
  return state.version();
}

using core::error_of;

}  // namespace trainyard::train
