#include "trainyard/optim/optimizers/flat_update.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>

#include "trainyard/optim/optimizers/complete_gradients.h"
#include "trainyard/optim/optimizers/host_update.h"
#include "trainyard/optim/optimizers/norm_clipper.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/device_kernels.h"
#include "trainyard/optim/step/segment_parts.h"

namespace trainyard::optim {
namespace {

constexpr int64_t kElementsPerThread = 32768;  // elements a thread at least: less is not worth waking one

void update_on_device(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
                      const AnyFormula& formula) {
  const bool complete = optimizer.gradients_complete();
  const bool coupled = optimizer.decay_form() == Optimizer::DecayForm::kCoupled;
  const bool in_loss = optimizer.decay_form() != Optimizer::DecayForm::kDecoupled;
  const double decay = optimizer.options().weight_decay * (in_loss ? optimizer.weight_decay_factor() : 1.0);
  std::vector<at::Tensor> slots;
  for (const Optimizer::Slot& slot : optimizer.slots()) slots.push_back(slot.values);
  slots.resize(slots_of(formula));
  optimizer.device()->flat_update({.values = optimizer.parameters().values(),
                                   .gradients = gradients,
                                   .slots = slots,
                                   .parts = &optimizer.parts(),
                                   .segments = static_cast<int>(optimizer.own().size()),
                                   .fields = complete ? unscaled_fields(state) : state.tensor(),
                                   .count = counts_updates(formula) ? optimizer.update_count() : at::Tensor(),
                                   .decay = coupled && !complete ? decay : 0.0,
                                   .update_decay = coupled ? 0.0 : decay,
                                   .clip = clip_of(optimizer),
                                   .adapt_undecayed = optimizer.adapts_undecayed()},
                                  formula);
}

}  // namespace

void for_each_part(const Optimizer& optimizer, const std::function<void(const SegmentPart&, size_t)>& work) {
  const SegmentPart* const parts = optimizer.parts().data();
  const SegmentPart* const end = parts + optimizer.parts().count;
  // A thread takes the parts that begin among its elements.
  at::parallel_for(optimizer.part().begin, optimizer.part().end, kElementsPerThread, [&](int64_t first, int64_t last) {
    const SegmentPart* part =
        std::partition_point(parts, end, [first](const SegmentPart& each) { return each.begin < first; });
    for (; part != end && part->begin < last; ++part) {
      if (optimizer.trainable(optimizer.own()[static_cast<size_t>(part->segment)])) {
        work(*part, static_cast<size_t>(part - parts));
      }
    }
  });
}

double clip_of(const Optimizer& optimizer) {
  return optimizer.options().gradient_clip.value_or(std::numeric_limits<double>::infinity());
}

void flat_update(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients, AnyFormula formula) {
  if (optimizer.device() != nullptr) {
    update_on_device(optimizer, state, gradients, formula);
  } else {
    update_on_host(optimizer, state, gradients, formula);
  }
}

}  // namespace trainyard::optim
