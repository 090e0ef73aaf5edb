#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_finite.h"
#include "trainyard/train/checkpoint/name_list.h"
#include "trainyard/train/checkpoint/position_embedding.h"
#include "trainyard/train/checkpoint/quantized_weights.h"

namespace trainyard::train {
namespace {

constexpr std::string_view kBatchCount = "num_batches_tracked";

// Parameters, then buffers, by name.
std::vector<std::pair<std::string, at::Tensor>> variables(const nn::ParameterSet& set) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (int i = 0; i < static_cast<int>(set.size()); ++i) {
    const nn::ParameterId id{i};
    result.emplace_back(set.segment(id).spec.name, set.value(id));
  }
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) {
    result.emplace_back(set.buffer_spec(i).name, set.buffer(i));
  }
  return result;
}

using Pairs = std::vector<std::pair<at::Tensor, const formats::StoredTensor*>>;

// Returns the grid of an embedding that must be interpolated, with the file's patches in it.
std::optional<PositionGrid> grid_to_interpolate(const formats::StoredTensor& stored, const at::Tensor& tensor,
                                                const std::vector<PositionGrid>& positions) {
  const auto found = std::find_if(positions.begin(), positions.end(),
                                  [&](const PositionGrid& grid) { return grid.parameter == stored.name; });
  if (found == positions.end()) return std::nullopt;
  PositionGrid grid = *found;
  grid.saved = saved_patches(stored.shape, grid);
  if (grid.saved == nn::Size2d(0) || grid.saved == grid.patches) return std::nullopt;
  if (stored.shape.back() != tensor.size(-1)) return std::nullopt;
  return grid;
}

std::string_view layer_of(const formats::StoredTensor& tensor) {
  const size_t dot = tensor.name.rfind('.');
  return std::string_view(tensor.name).substr(0, dot == std::string::npos ? 0 : dot);
}

// The file's number of classes if the tensors that differ, and no others, are one layer's, or those of several linear
// layers, as of a model with auxiliary classifiers, and differ in it alone; else 0.
int64_t other_classes(const Pairs& same, const Pairs& differing, int64_t num_classes) {
  std::map<std::string_view, bool> heads;  // whether a layer is linear
  std::set<int64_t> classes;
  for (const auto& [tensor, stored] : differing) {
    const std::vector<int64_t> ours = tensor.sizes().vec(), &theirs = stored->shape;
    if (ours.empty() || theirs.size() != ours.size() || ours[0] != num_classes ||
        !std::equal(ours.begin() + 1, ours.end(), theirs.begin() + 1)) {
      return 0;
    }
    bool& is_linear = heads[layer_of(*stored)];
    is_linear = is_linear || ours.size() == 2;
    classes.insert(theirs[0]);
  }
  const auto is_of_head = [&](const auto& pair) { return heads.contains(layer_of(*pair.second)); };
  if (std::any_of(same.begin(), same.end(), is_of_head)) return 0;
  // The layer behind one in the middle would take another number of values, and differ in it.
  const auto is_linear = [](const auto& head) { return head.second; };
  if (heads.size() > 1 && !std::all_of(heads.begin(), heads.end(), is_linear)) return 0;
  return classes.size() == 1 ? *classes.begin() : 0;
}

// Returns the name that a parameter had in earlier releases of torchvision, in which it published some weights: of the
// layers of DenseNets, and of the MLPs of vision transformers. Returns the name itself where it had no other.
std::string former_name(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kFormer[] = {
      {".norm1.", ".norm.1."}, {".norm2.", ".norm.2."},       {".conv1.", ".conv.1."},
      {".conv2.", ".conv.2."}, {".mlp.0.", ".mlp.linear_1."}, {".mlp.3.", ".mlp.linear_2."}};
  for (const auto& [now, before] : kFormer) {
    if (const size_t at = name.rfind(now); at != std::string::npos) {
      return std::string(name).replace(at, now.size(), before);
    }
  }
  return name;
}

std::string clause_of(std::string_view what, const std::vector<std::string>& names) {
  return names.empty() ? "" : fmt::format("; {}: {}", what, first_names(names));
}

}  // namespace

LoadedWeights load_weights(const formats::TensorFile& file, nn::ParameterSet& set, int64_t num_classes) {
  return load_weights(file, set, num_classes, std::vector<PositionGrid>());
}

LoadedWeights load_weights(const formats::TensorFile& file, nn::ParameterSet& set, int64_t num_classes,
                           const std::vector<PositionGrid>& positions, const std::vector<std::string>& new_head) {
  std::map<std::string_view, const formats::StoredTensor*> left;
  for (const formats::StoredTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(kBatchCount)) left.emplace(tensor.name, &tensor);
  }
  std::vector<std::string> missing, unexpected, misshapen, head;
  Pairs same, differing;
  int64_t classes_left_out = 0;
  std::map<const formats::StoredTensor*, PositionGrid> interpolated;
  for (auto& [name, tensor] : variables(set)) {
    auto found = left.find(name);
    if (found == left.end()) found = left.find(former_name(name));
    const bool is_new = std::find(new_head.begin(), new_head.end(), name) != new_head.end();
    if (found == left.end()) {
      if (is_new) {
        head.push_back(name);
      } else if (!name.ends_with(kBatchCount) && !is_name_of_scale(name)) {  // scales are found for the weights
        missing.push_back(name);
      }
      continue;
    }
    const formats::StoredTensor& stored = *found->second;
    left.erase(found);
    if (is_new && tensor.sizes() == at::IntArrayRef(stored.shape)) {
      head.push_back(name);
      classes_left_out = num_classes;
      continue;
    }
    if (const auto grid = grid_to_interpolate(stored, tensor, positions)) {
      interpolated.emplace(&stored, *grid);
      same.emplace_back(tensor, &stored);
      continue;
    }
    if (tensor.sizes() == at::IntArrayRef(stored.shape)) {
      same.emplace_back(tensor, &stored);
      continue;
    }
    differing.emplace_back(tensor, &stored);
    head.push_back(name);
    misshapen.push_back(fmt::format("{} is [{}], in the file [{}]", name, fmt::join(tensor.sizes(), ", "),
                                    fmt::join(stored.shape, ", ")));
  }
  for (const auto& [name, stored] : left) unexpected.emplace_back(name);
  if (std::any_of(unexpected.begin(), unexpected.end(), is_name_of_scale)) throw quantized_weights_error(file);
  const int64_t classes = differing.empty() ? 0 : other_classes(same, differing, num_classes);
  if (!missing.empty() || !unexpected.empty() || (!differing.empty() && classes == 0)) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "weights are not of this model",
         .where = file.path() + clause_of("missing in the file", missing) + clause_of("only in the file", unexpected) +
                  (classes == 0 ? clause_of("of another shape", misshapen) : ""),
         .remedy = misshapen.empty() || classes != 0
                       ? "pass the --model that the weights belong to; `trainyard models` names them"
                       : "pass the --model and the --image_size that the weights belong to"});
  }
  const at::NoGradGuard no_grad;
  std::vector<std::string> not_finite;
  for (auto& [tensor, stored] : same) {
    std::vector<float> values = file.read_floats(*stored);
    if (const int64_t count = count_non_finite(at::kFloat, std::as_bytes(std::span(values))); count > 0) {
      not_finite.push_back(fmt::format("{} ({} of {})", stored->name, count, values.size()));
    }
    const at::Tensor saved = at::from_blob(values.data(), stored->shape);
    const auto grid = interpolated.find(stored);
    tensor.copy_(grid == interpolated.end() ? saved : interpolate_positions(saved, grid->second));
  }
  set.values_changed();
  if (!not_finite.empty()) {
    throw core::Error(core::ErrorCode::kCorruptData,
                      {.problem = "weights hold NaN or infinity",
                       .where = file.path(),
                       .expected = "finite values",
                       .actual = fmt::format("{} tensors with others: {}", not_finite.size(), first_names(not_finite)),
                       .remedy = "export them again from a checkpoint that is finite"});
  }
  return {.tensors = static_cast<int64_t>(same.size()),
          .file_classes = std::max(classes, classes_left_out),
          .head = std::move(head)};
}

namespace {

// Bytes in memory under the name of a file.
class MemoryFile : public core::ReadableFile {
 public:
  MemoryFile(std::string path, std::vector<std::byte> bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return bytes_.size(); }
  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      throw core::Error(core::ErrorCode::kCorruptData, {.problem = "file ends too early", .where = path_});
    }
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
  }

 private:
  std::string path_;
  std::vector<std::byte> bytes_;
};

}  // namespace

formats::TensorFile tensor_file_of(const nn::ParameterSet& set, const std::string& path) {
  std::vector<std::byte> bytes;
  std::vector<formats::StoredTensor> tensors;
  for (const auto& [name, tensor] : variables(set)) {
    const at::Tensor copy = tensor.cpu().to(at::kFloat).contiguous();
    tensors.push_back(
        {.name = name, .shape = copy.sizes().vec(), .strides = copy.strides().vec(), .offset = bytes.size()});
    const auto* const begin = reinterpret_cast<const std::byte*>(copy.const_data_ptr<float>());
    bytes.insert(bytes.end(), begin, begin + copy.nbytes());
  }
  return {std::make_unique<MemoryFile>(path, std::move(bytes)), std::move(tensors)};
}

void save_weights(const std::string& path, const nn::ParameterSet& set, std::map<std::string, std::string> metadata) {
  std::vector<at::Tensor> copies;  // contiguous float32
  std::vector<formats::FloatTensor> tensors;
  for (const auto& [name, tensor] : variables(set)) {
    copies.push_back(tensor.cpu().to(at::kFloat).contiguous());
    tensors.push_back({name,
                       tensor.sizes().vec(),
                       {copies.back().const_data_ptr<float>(), static_cast<size_t>(copies.back().numel())}});
  }
  metadata["format"] = "pt";
  formats::write_safetensors(path, tensors, metadata);
}

}  // namespace trainyard::train
