#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/train/callbacks/debugging.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {
namespace {

constexpr std::string_view kGradient = "/gradient";

at::Tensor named_tensor(const ReplicaView& replica, const std::string& name) {
  const core::NamedTensors outputs = replica.outputs, losses = replica.losses;
  for (const core::NamedTensors* tensors : {&outputs, &losses}) {
    if (const at::Tensor* found = tensors->find(name)) return *found;
  }
  if (replica.parameters != nullptr) {
    if (const auto id = replica.parameters->find(name)) return replica.parameters->value(*id);
    if (name.ends_with(kGradient)) {
      const auto id = replica.parameters->find(std::string_view(name).substr(0, name.size() - kGradient.size()));
      if (id) return replica.parameters->gradient(*id);
    }
  }
  std::vector<std::string> others = outputs.names();
  for (const std::string& loss : losses.names()) others.push_back(loss);
  throw core::Error(core::ErrorCode::kNotFound,
                    {.problem = fmt::format("a step has no tensor '{}' to write", name),
                     .expected = fmt::format("the name of a parameter, alone or with {} behind it, or one of: {}",
                                             kGradient, fmt::join(others, ", "))});
}

}  // namespace

DumpTensors::DumpTensors(std::string directory, std::vector<std::string> names, core::FileSystem& files)
    : directory_(std::move(directory)), names_(std::move(names)), files_(&files) {
  if (names_.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, "DumpTensors needs names of tensors");
  }
}

void DumpTensors::after_step(Trainer& trainer, const StepView& view) {
  if (view.replicas.empty()) {
    throw core::Error(core::ErrorCode::kNotFound, "DumpTensors works with trainers whose steps have replicas");
  }
  std::vector<at::Tensor> values;
  for (const std::string& name : names_) {
    values.push_back(named_tensor(view.replicas[0], name).detach().to(at::kCPU, at::kFloat).contiguous());
  }
  std::vector<formats::FloatTensor> tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    tensors.push_back({.name = names_[i],
                       .shape = values[i].sizes().vec(),
                       .values = std::span(values[i].const_data_ptr<float>(), static_cast<size_t>(values[i].numel()))});
  }
  files_->make_directories(directory_);
  const std::string file = fmt::format("step-{}.safetensors", trainer.global_step());
  const std::string path = core::join_path(directory_, file);
  core::require_plain_output(path);  // the name is not the user's
  formats::write_safetensors(path, tensors, {{"format", "pt"}}, *files_);
}

}  // namespace trainyard::train
