// The facts that a checkpoint stores about its model: the class of each output, how an evaluation makes its images, and
// which of its weights to use (docs/formats/checkpoint.md). They are read and checked here only: CheckpointReader
// checks them whenever a checkpoint is opened, so that readers never see an invalid value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/nn/graph/ops.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"

namespace trainyard::train {

// The most outputs that a model may have.
inline constexpr int64_t kMostOutputs = int64_t{1} << 24;
inline constexpr int64_t kLongestResize = 65'535;  // pixels, as --eval_resize_size takes them

struct SavedAverage {
  std::string kind{};   // "exponential", "equal" or "optimizer"
  int64_t updates = 0;  // updates of the average
  int64_t steps = 0;    // training steps of the average; at least `updates`
};

struct SavedBest {
  std::string metric{};
  double value = 0;
};

// What a run of --finetune has chosen by its number of images; 0: a flag has given it.
struct SavedFineTuning {
  int64_t batch_size = 0;  // images a device
  int64_t num_epochs = 0;
  int64_t early_stop = 0;  // evaluations without a better one
};

struct CheckpointFacts {
  CheckpointIdentity identity{};
  std::vector<std::string> classes{};  // class names, from `first_output` on; empty: classes have numbers only
  int64_t first_output = 0;            // 1: output 0 is the background
  std::string label_texts{};           // data::LabelTexts; empty: none
  nn::Size2d image_size = 0;           // 0: not stored (earlier releases): the model's own size
  // How an evaluation makes its images: the options that save_input() saves. Unset: not stored.
  std::optional<data::TransformOptions> input{};
  std::string preprocessor{};  // name in data::input_presets() that the training started from; empty: not stored
  // How the training divided its images into both parts. Unset: not asked for, or not stored.
  std::optional<data::Division> division{};
  bool label_sets = false;  // outputs are independent labels, any number of them an image: sigmoids, not a softmax
  std::optional<SavedAverage> average{};
  // Whether the training's own evaluations used the averaged weights. Unset: not stored.
  std::optional<bool> averaged_weights{};
  std::optional<SavedBest> best{};
  std::string optimizer{};                       // value of --optimizer; empty: not stored
  int64_t found_batch = 0;                       // images a device that --batch_size=auto has found; 0: not stored
  std::optional<SavedFineTuning> fine_tuning{};  // unset: the run was begun without --finetune
  bool has_scales = false;  // of 8 bits: the training was quantization-aware (nn/quantization/quantization_aware.h)
  // Whether some dimension of a weight equals the identity's number of outputs.
  bool weights_have_outputs = false;
};

// Returns the facts in the manifest. `where` names the checkpoint's directory in errors. Throws damaged_checkpoint(),
// naming the manifest and the entry, for an entry that is missing although related ones exist, has another kind, or is
// out of range.
[[nodiscard]] CheckpointFacts read_checkpoint_facts(const Manifest& manifest, const std::string& where);
// Reads only the manifest of a checkpoint. Also throws what read_manifest() throws.
[[nodiscard]] CheckpointFacts read_checkpoint_facts(const CheckpointInfo& checkpoint,
                                                    core::FileSystem& files = core::local_file_system());
// Returns the facts of an open checkpoint.
[[nodiscard]] CheckpointFacts read_checkpoint_facts(const core::StateReader& reader, const CheckpointIdentity& identity,
                                                    const std::string& where);

// Saves the part of `input` that an evaluation depends on, its size included, and the preset's name, as
// "data/input/...".
void save_input(const data::TransformOptions& input, const std::string& preprocessor, core::StateWriter& writer);
// Saves names of classes as "data/classes", and nothing when there are none.
void save_classes(const std::vector<std::string>& names, int64_t first_output, core::StateWriter& writer);
// Saves as "data/division" how the images are divided, and as "data/label_sets" that an image may have several labels.
void save_division(const data::Division& division, core::StateWriter& writer);
void save_label_sets(core::StateWriter& writer);
// Saves as "data/weights_of" which weights the training's evaluations use.
void save_weights_of(bool averaged, core::StateWriter& writer);
// Saves as "run/found_batch" the images a device that --batch_size=auto has found, at least 1.
void save_found_batch(int64_t batch_size, core::StateWriter& writer);
// Saves as "run/fine_tuning/..." what --finetune has chosen.
void save_fine_tuning(const SavedFineTuning& chosen, core::StateWriter& writer);
// Saves the optimizer as "run/optimizer", and nothing when the name is empty.
void save_optimizer(const std::string& name, core::StateWriter& writer);

}  // namespace trainyard::train
