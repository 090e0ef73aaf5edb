#include "trainyard/train/checkpoint/checkpoint_facts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/dataset_division.h"
#include "trainyard/data/image/resize_convention.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/quantization/quantization_aware.h"
#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/optim/flags.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"

namespace trainyard::train {
namespace {

constexpr std::string_view kAverage = "average/", kInput = "data/input/", kBest = "best/";
const std::string kClasses = "data/classes", kLabelTexts = "input/label_texts", kWeightsOf = "data/weights_of";
const std::string kOldLabelNames = "data/label_names";  // one a line, of earlier releases
const std::string kOptimizer = "run/optimizer", kFoundBatch = "run/found_batch";
// Before each of the numbers that --finetune has chosen.
const std::string kFineTuning = "run/fine_tuning/";
const std::string kDivision = "data/division", kLabelSets = "data/label_sets";
constexpr std::array<const char*, 3> kChannels = {"red", "green", "blue"};
constexpr int64_t kMostSteps = int64_t{1} << 53;  // of a run, and samples of an epoch
constexpr int64_t kMostBatch = int64_t{1} << 40;  // as --batch_size
constexpr const char* kAveraged = "average";
constexpr const char* kLast = "last";

// Returns today's name of an optimizer that an earlier version may have saved.
std::string current_name(const std::string& saved) {
  std::string now = optim::optimizer_of_flag(saved);
  if (now != saved) core::note_former_name("optimizer", saved, now);
  return now;
}

// The entries of a checkpoint, one by one, whatever holds them.
class Entries {
 public:
  Entries(const Manifest& manifest, const std::string& where) : manifest_(&manifest), where_(where) {}
  Entries(const core::StateReader& reader, const std::string& where) : reader_(&reader), where_(where) {}

  [[noreturn]] void refuse(const std::string& name, const std::string& expected, const std::string& actual) const {
    const std::string file = manifest_ != nullptr ? core::join_path(where_, kManifestFile) : where_;
    throw damaged_checkpoint("an entry of the checkpoint cannot be", fmt::format("{}, {}", file, name), expected,
                             actual);
  }
  bool has(const std::string& name) const {
    return manifest_ != nullptr ? manifest_->values.contains(name) : reader_->has(name);
  }
  bool has_any(std::string_view prefix) const {
    if (manifest_ == nullptr) return !reader_->names(prefix).empty();
    const auto begins = [prefix](const std::string& name) { return name.starts_with(prefix); };
    for (const auto& [name, value] : manifest_->values) {
      if (begins(name)) return true;
    }
    for (const TensorEntry& tensor : manifest_->tensors) {
      if (begins(tensor.name)) return true;
    }
    return false;
  }
  int64_t integer(const std::string& name) const {
    return manifest_ == nullptr ? reader_->integer(name) : value<int64_t>(name, "an integer");
  }
  double real(const std::string& name) const {
    return manifest_ == nullptr ? reader_->real(name) : value<double>(name, "a real number");
  }
  std::string text(const std::string& name) const {
    return manifest_ == nullptr ? reader_->text(name) : value<std::string>(name, "a text");
  }

  // Returns an integer in [lowest, highest].
  int64_t integer(const std::string& name, int64_t lowest, int64_t highest) const {
    const int64_t number = integer(name);
    if (number < lowest || number > highest) {
      refuse(name, fmt::format("{} to {}", lowest, highest), std::to_string(number));
    }
    return number;
  }
  bool boolean(const std::string& name) const { return integer(name, 0, 1) != 0; }
  // Returns a number that float32 can hold.
  float finite(const std::string& name) const {
    const auto number = static_cast<float>(real(name));
    if (!std::isfinite(number)) refuse(name, "a finite number", fmt::format("{}", real(name)));
    return number;
  }

 private:
  template <typename T>
  const T& value(const std::string& name, const char* kind) const {
    const auto found = manifest_->values.find(name);
    if (found == manifest_->values.end()) refuse(name, kind, "no such entry");
    if (const T* same = std::get_if<T>(&found->second)) return *same;
    constexpr std::array<const char*, 3> kKinds{"an integer", "a real number", "a text"};
    refuse(name, kind, kKinds[found->second.index()]);
  }

  const Manifest* manifest_ = nullptr;
  const core::StateReader* reader_ = nullptr;
  const std::string& where_;
};

std::string shown(const std::string& text) {
  return data::quoted_class(text);
}

// Reads a whole number that takes all of `text`.
std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

void check_identity(const Entries& entries, const CheckpointIdentity& identity) {
  if (identity.num_classes >= 0 && identity.num_classes <= kMostOutputs) return;
  entries.refuse("identity, num_classes", fmt::format("0 to {}", kMostOutputs), std::to_string(identity.num_classes));
}

void check_count(const Entries& entries, const std::string& name, const CheckpointFacts& facts) {
  const int64_t outputs = facts.identity.num_classes, needed = std::ssize(facts.classes) + facts.first_output;
  if (outputs == 0 || needed <= outputs) return;
  entries.refuse(name, fmt::format("names for at most {} outputs", outputs),
                 fmt::format("{} from output {} on", facts.classes.size(), facts.first_output));
}

void read_classes(const Entries& entries, CheckpointFacts& facts) {
  if (entries.has(kClasses)) {
    std::vector<std::string> lines = data::decode_class_names(entries.text(kClasses));
    const auto first = lines.empty() ? std::nullopt : whole_number(lines.front());
    if (!first || *first < 0 || *first > 1 || lines.size() < 2) {
      entries.refuse(kClasses, "0 or 1, the output of the first class, and then a name a line",
                     lines.empty() ? "no line" : fmt::format("{}, {} names", shown(lines.front()), lines.size() - 1));
    }
    facts.first_output = *first;
    facts.classes.assign(lines.begin() + 1, lines.end());
    check_count(entries, kClasses, facts);
  } else if (entries.has(kOldLabelNames)) {
    std::string text = entries.text(kOldLabelNames);
    if (!text.empty() && text.back() != '\n') text += '\n';
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      facts.classes.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    // Only class folders had names there, and they began behind the background.
    const bool background = facts.identity.dataset == "imagenet" &&
                            facts.identity.num_classes == models::find_dataset("imagenet").benchmark_classes;
    if (background && !facts.classes.empty()) facts.first_output = 1;
    check_count(entries, kOldLabelNames, facts);
  }
}

void read_label_texts(const Entries& entries, CheckpointFacts& facts) {
  if (!entries.has(kLabelTexts)) return;
  facts.label_texts = entries.text(kLabelTexts);
  const std::vector<std::string> lines = data::decode_class_names(facts.label_texts);
  if (lines.empty() || (lines.front() != "complete" && lines.front() != "partial")) {
    entries.refuse(kLabelTexts, "'complete' or 'partial' in its first line",
                   lines.empty() ? "no line" : shown(lines[0]));
  }
  const int64_t outputs = facts.identity.num_classes > 0 ? facts.identity.num_classes : kMostOutputs;
  for (size_t i = 1; i < lines.size(); ++i) {
    const size_t blank = lines[i].find(' ');
    const auto label =
        blank == std::string::npos ? std::nullopt : whole_number(std::string_view(lines[i]).substr(0, blank));
    if (!label || *label < 0 || *label >= outputs) {
      entries.refuse(kLabelTexts, fmt::format("lines of an output below {} and a text", outputs), shown(lines[i]));
    }
  }
}

std::string input_entry(const char* name) {
  return std::string(kInput) + name;
}

void read_image_size(const Entries& entries, CheckpointFacts& facts) {
  const std::string height = input_entry("height"), width = input_entry("width");
  if (!entries.has(height) && !entries.has(width)) return;
  facts.image_size = {entries.integer(height, 1, models::kLongestImageSide),
                      entries.integer(width, 1, models::kLongestImageSide)};
}

void read_input(const Entries& entries, CheckpointFacts& facts) {
  read_image_size(entries, facts);
  const auto flag = [&](const char* name) {  // that earlier releases did not save
    const std::string entry = input_entry(name);
    return entries.has(entry) && entries.boolean(entry);
  };
  const std::string method = input_entry("resize_method");
  // Earlier releases saved the size alone, or nothing.
  const bool said = entries.has(method) || entries.has(input_entry("eval_resize_size")) ||
                    entries.has_any(input_entry("scale/")) || entries.has(input_entry("preprocessor"));
  if (!said) return;
  data::TransformOptions input;
  if (facts.image_size != nn::Size2d(0)) {
    input.height = facts.image_size.height;
    input.width = facts.image_size.width;
  }
  input.training = false;
  input.resize_method = entries.text(method);
  constexpr std::array<std::string_view, 6> kMethods = {"nearest", "bilinear",    "bicubic",
                                                        "area",    "round_robin", "crop"};
  if (std::find(kMethods.begin(), kMethods.end(), input.resize_method) == kMethods.end()) {
    entries.refuse(method, fmt::format("{}", fmt::join(kMethods, ", ")), shown(input.resize_method));
  }
  input.resize_antialias = entries.boolean(input_entry("resize_antialias"));
  input.resize_half_pixel_centers = entries.boolean(input_entry("resize_half_pixel_centers"));
  input.eval_resize_size = entries.integer(input_entry("eval_resize_size"), 0, kLongestResize);
  if (const std::string name = input_entry("resize_convention"); entries.has(name)) {  // before: the plain one
    const std::string convention = entries.text(name);
    try {
      input.resize_convention = data::resize_convention(convention);
    } catch (const core::Error&) {
      entries.refuse(name, "a convention of resizing that this release has", shown(convention));
    }
  }
  input.scaled_decode = input.eval_scaled_decode = flag("scaled_decode");
  input.exif_orientation = flag("exif_orientation");
  const int64_t longer = std::max(facts.image_size.height, facts.image_size.width);
  if (input.eval_resize_size != 0 && input.eval_resize_size < longer) {
    entries.refuse(input_entry("eval_resize_size"),
                   fmt::format("0, or at least the {} pixels that are cut out", longer),
                   std::to_string(input.eval_resize_size));
  }
  if (const std::string part = input_entry("eval_central_part"); entries.has(part)) {
    input.eval_central_part = entries.finite(part);
    if (!(input.eval_central_part > 0 && input.eval_central_part <= 1) || input.eval_resize_size != 0) {
      entries.refuse(part, "above 0, at most 1, and no eval_resize_size", fmt::format("{}", input.eval_central_part));
    }
  }
  for (size_t c = 0; c < kChannels.size(); ++c) {
    const std::string scale = input_entry("scale/") + kChannels[c];
    input.normalization.scale[c] = entries.finite(scale);
    if (!std::isnormal(input.normalization.scale[c])) {
      entries.refuse(scale, "a number that is not 0", fmt::format("{}", input.normalization.scale[c]));
    }
    input.normalization.shift[c] = entries.finite(input_entry("shift/") + kChannels[c]);
  }
  if (const std::string name = input_entry("preprocessor"); entries.has(name)) {
    facts.preprocessor = entries.text(name);
    if (!data::input_presets().has(facts.preprocessor)) {
      entries.refuse(name, fmt::format("{}", fmt::join(data::input_presets().names(), ", ")),
                     shown(facts.preprocessor));
    }
  }
  facts.input = input;
}

void read_average(const Entries& entries, CheckpointFacts& facts) {
  if (entries.has_any(kAverage)) {
    const std::string kind = std::string(kAverage) + "kind", updates = std::string(kAverage) + "updates";
    SavedAverage average{.kind = entries.text(kind)};
    const std::vector<std::string> kinds = optim::average_kind_names();
    if (std::find(kinds.begin(), kinds.end(), average.kind) == kinds.end()) {
      entries.refuse(kind, fmt::format("{}", fmt::join(kinds, " or ")), shown(average.kind));
    }
    average.steps = entries.integer(std::string(kAverage) + "steps", 0, kMostSteps);
    average.updates = entries.integer(updates, 0, average.steps);
    if (!entries.has_any(optim::kAveragedWeights)) {
      entries.refuse(std::string(optim::kAveragedWeights), "the averaged weights", "none");
    }
    facts.average = std::move(average);
  }
  if (!entries.has(kWeightsOf)) return;
  const std::string which = entries.text(kWeightsOf);
  if (which != kAveraged && which != kLast) {
    entries.refuse(kWeightsOf, fmt::format("{} or {}", kAveraged, kLast), shown(which));
  }
  facts.averaged_weights = which == kAveraged;
}

void read_best(const Entries& entries, CheckpointFacts& facts) {
  if (!entries.has_any(kBest)) return;
  const std::string metric = std::string(kBest) + "metric", value = std::string(kBest) + "value";
  SavedBest best{.metric = entries.text(metric), .value = entries.real(value)};
  if (best.metric.empty()) entries.refuse(metric, "the name of a metric", "an empty text");
  if (!std::isfinite(best.value)) entries.refuse(value, "a finite number", fmt::format("{}", best.value));
  facts.best = std::move(best);
}

// Where the run was: counts, which are read by the trainer and its input themselves.
void check_place(const Entries& entries) {
  for (const char* count :
       {"trainer/global_step", "trainer/epoch", "trainer/step_in_epoch", "input/epoch", "input/offset"}) {
    if (entries.has(count)) static_cast<void>(entries.integer(count, 0, kMostSteps));
  }
}

bool is_training_scale(const std::string& name) {
  return name.starts_with("model/") && !nn::scaled_node(name).empty();
}

bool has_scales(const Manifest& manifest) {
  return std::any_of(manifest.tensors.begin(), manifest.tensors.end(),
                     [](const TensorEntry& tensor) { return is_training_scale(tensor.name); });
}

bool has_size(const Manifest& manifest, int64_t outputs) {
  return std::any_of(manifest.tensors.begin(), manifest.tensors.end(), [outputs](const TensorEntry& tensor) {
    return tensor.name.starts_with("model/") &&
           std::find(tensor.shape.begin(), tensor.shape.end(), outputs) != tensor.shape.end();
  });
}

void read_division(const Entries& entries, CheckpointFacts& facts) {
  if (entries.has(kLabelSets)) facts.label_sets = entries.boolean(kLabelSets);
  if (!entries.has(kDivision)) return;
  const std::string text = entries.text(kDivision);
  facts.division = data::division_of_text(text);
  if (!facts.division) entries.refuse(kDivision, "validation_split=PART or folds=N,fold=K", shown(text));
}

void read_fine_tuning(const Entries& entries, CheckpointFacts& facts) {
  if (!entries.has_any(kFineTuning)) return;
  SavedFineTuning& chosen = facts.fine_tuning.emplace();
  chosen.batch_size = entries.integer(kFineTuning + "batch_size", 0, kMostBatch);
  chosen.num_epochs = entries.integer(kFineTuning + "num_epochs", 0, kMostSteps);
  chosen.early_stop = entries.integer(kFineTuning + "early_stop", 0, kMostSteps);
}

CheckpointFacts facts_of(const Entries& entries, const CheckpointIdentity& identity) {
  CheckpointFacts facts;
  facts.identity = identity;
  check_identity(entries, identity);
  read_classes(entries, facts);
  read_label_texts(entries, facts);
  read_input(entries, facts);
  read_division(entries, facts);
  read_average(entries, facts);
  read_best(entries, facts);
  check_place(entries);
  if (entries.has(kFoundBatch)) facts.found_batch = entries.integer(kFoundBatch, 1, kMostBatch);
  read_fine_tuning(entries, facts);
  if (entries.has(kOptimizer)) facts.optimizer = current_name(entries.text(kOptimizer));
  if (entries.has(kOptimizer) && facts.optimizer.empty()) entries.refuse(kOptimizer, "the name of an optimizer", "''");
  return facts;
}

}  // namespace

CheckpointFacts read_checkpoint_facts(const Manifest& manifest, const std::string& where) {
  CheckpointFacts facts = facts_of(Entries(manifest, where), manifest.identity);
  facts.weights_have_outputs = has_size(manifest, manifest.identity.num_classes);
  facts.has_scales = has_scales(manifest);
  return facts;
}

CheckpointFacts read_checkpoint_facts(const CheckpointInfo& checkpoint, core::FileSystem& files) {
  return read_checkpoint_facts(read_manifest(checkpoint.path, files), checkpoint.path);
}

CheckpointFacts read_checkpoint_facts(const core::StateReader& reader, const CheckpointIdentity& identity,
                                      const std::string& where) {
  CheckpointFacts facts = facts_of(Entries(reader, where), identity);
  const std::vector<std::string> names = reader.names("model/");
  facts.has_scales = std::any_of(names.begin(), names.end(), is_training_scale);
  return facts;
}

void save_input(const data::TransformOptions& input, const std::string& preprocessor, core::StateWriter& writer) {
  core::ScopedWriter entries(writer, std::string(kInput));
  entries.integer("height", input.height);
  entries.integer("width", input.width);
  entries.text("resize_method", input.resize_method);
  entries.integer("resize_antialias", input.resize_antialias ? 1 : 0);
  entries.integer("resize_half_pixel_centers", input.resize_half_pixel_centers ? 1 : 0);
  entries.integer("eval_resize_size", input.eval_resize_size);
  if (input.eval_central_part > 0) entries.real("eval_central_part", input.eval_central_part);
  if (input.resize_convention != data::ResizeConvention::kPlain) {
    entries.text("resize_convention", data::resize_convention_name(input.resize_convention));
  }
  entries.integer("scaled_decode", input.eval_scaled_decode ? 1 : 0);
  entries.integer("exif_orientation", input.exif_orientation ? 1 : 0);
  for (size_t c = 0; c < kChannels.size(); ++c) {
    entries.real(fmt::format("scale/{}", kChannels[c]), input.normalization.scale[c]);
    entries.real(fmt::format("shift/{}", kChannels[c]), input.normalization.shift[c]);
  }
  if (!preprocessor.empty()) entries.text("preprocessor", preprocessor);
}

void save_classes(const std::vector<std::string>& names, int64_t first_output, core::StateWriter& writer) {
  if (names.empty()) return;
  std::vector<std::string> lines = {fmt::format("{}", first_output)};
  lines.insert(lines.end(), names.begin(), names.end());
  writer.text(kClasses, data::encode_class_names(lines));
}

void save_division(const data::Division& division, core::StateWriter& writer) {
  writer.text(kDivision, data::division_text(division));
}

void save_label_sets(core::StateWriter& writer) {
  writer.integer(kLabelSets, 1);
}

void save_weights_of(bool averaged, core::StateWriter& writer) {
  writer.text(kWeightsOf, averaged ? kAveraged : kLast);
}

void save_found_batch(int64_t batch_size, core::StateWriter& writer) {
  writer.integer(kFoundBatch, batch_size);
}

void save_fine_tuning(const SavedFineTuning& chosen, core::StateWriter& writer) {
  writer.integer(kFineTuning + "batch_size", chosen.batch_size);
  writer.integer(kFineTuning + "num_epochs", chosen.num_epochs);
  writer.integer(kFineTuning + "early_stop", chosen.early_stop);
}

void save_optimizer(const std::string& name, core::StateWriter& writer) {
  if (!name.empty()) writer.text(kOptimizer, name);
}

}  // namespace trainyard::train
