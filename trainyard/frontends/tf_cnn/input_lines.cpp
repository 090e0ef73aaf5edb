#include "trainyard/frontends/tf_cnn/input_lines.h"

#include <fmt/format.h>

#include "trainyard/data/augment/describe_transform.h"

namespace trainyard::frontends {
namespace {

std::string operations_of(const InputSettings& input, bool training) {
  data::TransformOptions options = input.transform;
  options.training = training;
  std::string lines;
  for (const std::string& line : data::describe_transform(input.dataset, options)) lines += "  " + line + "\n";
  return lines;
}

std::string batch_operations(const InputSettings& input) {
  std::string lines;
  if (input.repeated_augmentation > 1) {
    lines += fmt::format("  repeated_augmentation {}\n", input.repeated_augmentation);
  }
  const data::MixOptions& mix = input.mix;
  if (mix.mixup_alpha > 0) lines += fmt::format("  mixup alpha={:.6g}\n", mix.mixup_alpha);
  if (mix.cutmix_alpha > 0) lines += fmt::format("  cutmix alpha={:.6g}\n", mix.cutmix_alpha);
  if (mix.enabled()) {
    lines += fmt::format("  mixed by pairs p={:.6g}", mix.probability);
    if (mix.mixup_alpha > 0 && mix.cutmix_alpha > 0) {
      lines += fmt::format(" switch_to_cutmix={:.6g}", mix.cutmix_probability);
    }
    lines += "\n";
  }
  if (input.balanced_sampling) lines += "  balanced_sampling\n";
  for (const data::EpochSize& size : input.epoch_sizes) {
    lines += fmt::format("  size {}x{} from epoch {}\n", size.size.height, size.size.width, size.from_epoch);
  }
  return lines.empty() ? "  none\n" : lines;
}

}  // namespace

std::string input_lines(const InputSettings& input) {
  return "Training images:\n" + operations_of(input, true) + "Batches:\n" + batch_operations(input) +
         "Validation images:\n" + operations_of(input, false);
}

}  // namespace trainyard::frontends
