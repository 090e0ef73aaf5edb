#include "trainyard/train/checkpoint/masked_state.h"

#include <set>

#include <ATen/ops/logical_not.h>
#include <ATen/ops/masked_fill.h>

#include "trainyard/core/base/error.h"

namespace trainyard::train {

void MaskedState::save(core::StateWriter& writer) const {
  std::set<std::string> masks;
  for (const nn::Segment& segment : masked_->segments()) {
    const at::Tensor mask = masked_->mask(segment.id);
    if (!mask.defined()) continue;
    const std::string& name = *masks.insert("model/" + segment.spec.name + ".mask").first;
    writer.tensor(name, mask);
  }
  for (const std::string& name : saved_->names()) {
    if (name.starts_with("replica/") || masks.contains(name)) continue;
    const at::Tensor mask = mask_of(name);
    if (!mask.defined()) {
      saved_->copy(name, writer, name);
      continue;
    }
    const at::Tensor value = saved_->tensor(name);
    writer.tensor(name, value.sizes() == mask.sizes() ? value.masked_fill(mask.logical_not(), 0) : value);
  }
}

at::Tensor MaskedState::mask_of(const std::string& entry) const {
  if (entry.starts_with("optimizer/")) return {};
  for (size_t slash = entry.find('/'); slash != std::string::npos; slash = entry.find('/', slash + 1)) {
    if (const auto id = masked_->find(std::string_view(entry).substr(slash + 1))) return masked_->mask(*id);
  }
  return {};
}

void MaskedState::load(const core::StateReader&) {
  throw core::Error(core::ErrorCode::kInternal, "a state that masks a saved one cannot be loaded");
}

}  // namespace trainyard::train
