// What a checkpoint says of its model, apart from the weights: which output stands for which class, how an evaluation
// makes its images, and which of its weights are to be used (docs/formats/checkpoint.md). One struct, read and checked
// here alone: CheckpointReader checks it whenever a checkpoint is opened, so that no reader meets a value that cannot
// be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/nn/graph/ops.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"

namespace trainyard::train {

// The most outputs that a model may have.
inline constexpr int64_t kMostOutputs = int64_t{1} << 24;

struct SavedAverage {
  std::string kind{};   // "exponential" or "equal"
  int64_t updates = 0;  // of the average
  int64_t steps = 0;    // that counted for it; at least `updates`
};

struct SavedBest {
  std::string metric{};
  double value = 0;
};

struct CheckpointFacts {
  CheckpointIdentity identity{};
  std::vector<std::string> classes{};  // their names, from `first_output` on; empty: they have numbers only
  int64_t first_output = 0;            // 1: output 0 is the background
  std::string label_texts{};           // data::LabelTexts; empty: none
  nn::Size2d image_size = 0;           // 0: it is not said, as earlier releases did not: the model's own
  // How an evaluation makes its images; of these options the part that save_input() saves. Not set: it is not said.
  std::optional<data::TransformOptions> input{};
  std::string preprocessor{};  // the name in data::input_presets() that the training began from; empty: not said
  std::optional<SavedAverage> average{};
  // Whether the training's own evaluations took the averaged weights. Not set: it is not said.
  std::optional<bool> averaged_weights{};
  std::optional<SavedBest> best{};
  std::string optimizer{};  // as --optimizer names it; empty: it is not said
  // Whether a weight has as many rows, or another size, as the identity says that there are outputs.
  bool weights_have_outputs = false;
};

// Returns what the manifest says. `where` names the checkpoint's directory in errors. Throws damaged_checkpoint(),
// naming the manifest and the entry, for one that is missing where its neighbours are there, of another kind, or out of
// its range.
[[nodiscard]] CheckpointFacts read_checkpoint_facts(const Manifest& manifest, const std::string& where);
// Reads the manifest of a checkpoint alone. Throws what read_manifest() throws, too.
[[nodiscard]] CheckpointFacts read_checkpoint_facts(const CheckpointInfo& checkpoint,
                                                    core::FileSystem& files = core::local_file_system());
// Returns what an open checkpoint says.
[[nodiscard]] CheckpointFacts read_checkpoint_facts(const core::StateReader& reader, const CheckpointIdentity& identity,
                                                    const std::string& where);

// Saves the part of `input` that an evaluation depends on, its size included, and the preset's name, as
// "data/input/...".
void save_input(const data::TransformOptions& input, const std::string& preprocessor, core::StateWriter& writer);
// Saves names of classes as "data/classes"; nothing where there are none.
void save_classes(const std::vector<std::string>& names, int64_t first_output, core::StateWriter& writer);
// Saves which weights the training's evaluations take as "data/weights_of".
void save_weights_of(bool averaged, core::StateWriter& writer);
// Saves the optimizer as "run/optimizer"; nothing where the name is empty.
void save_optimizer(const std::string& name, core::StateWriter& writer);

}  // namespace trainyard::train
