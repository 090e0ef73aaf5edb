// The optimizers' kernels for NVIDIA GPUs, as optim/step/device_kernels.h asks for them.
#include <algorithm>

#include <ATen/ops/empty.h>

#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/optim/cuda/kernels.h"
#include "trainyard/optim/step/device_kernels.h"
#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim::cuda {
namespace {

using core::cuda::current_stream;

bool is_double(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble;
}

class CudaKernels : public DeviceKernels {
 public:
  void flat_update(const DeviceUpdate& update, const AnyFormula& formula) const override {
    const auto* const field = update.fields.const_data_ptr<double>();
    FlatUpdate launched{.is_double = is_double(update.values),
                        .values = update.values.data_ptr(),
                        .gradients = update.gradients.const_data_ptr(),
                        .parts = update.parts->data(),
                        .part_count = update.parts->count,
                        .learning_rate = field + StepState::kLearningRate,
                        .inverse_loss_scale = field + StepState::kInverseLossScale,
                        .found_inf = field + StepState::kFoundInf,
                        .decay = update.decay,
                        .clip = update.clip,
                        .update_decay = update.update_decay,
                        .segments = update.segments,
                        .adapt_undecayed = update.adapt_undecayed};
    for (size_t s = 0; s < update.slots.size(); ++s) launched.slots[s] = update.slots[s].data_ptr();
    const at::TensorOptions doubles = update.fields.options();
    at::Tensor derived, sums, ratios;
    if (counts_updates(formula)) {
      static_assert(sizeof(UpdateCount) == 2 * sizeof(double));
      derived = at::empty({static_cast<int64_t>(sizeof(AnyFormula))}, doubles.dtype(at::kByte));
      launched.count = static_cast<UpdateCount*>(update.count.data_ptr());
      launched.derived = derived.data_ptr();
    }
    if (scaled_by_norms(formula)) {
      sums = at::empty({update.parts->count, 2}, doubles);
      ratios = at::empty({update.segments}, doubles);
      launched.sums = sums.data_ptr<double>();
      launched.ratios = ratios.data_ptr<double>();
    }
    launch_flat_update(launched, formula, current_stream());
  }

  at::Tensor sum_of_decayed_squares(const at::Tensor& values, const SegmentPartTable& parts) const override {
    const at::TensorOptions options = values.options().dtype(at::kDouble);
    const at::Tensor sums = at::empty({parts.count}, options);
    at::Tensor total = at::empty({}, options);
    const cudaStream_t stream = current_stream();
    part_squares(is_double(values), values.const_data_ptr(), parts.data(), parts.count, sums.data_ptr<double>(),
                 stream);
    add_up(sums.const_data_ptr<double>(), parts.count, total.data_ptr<double>(), stream);
    return total;
  }

  void write_fields(const at::Tensor& fields, std::span<const double> values) const override {
    StepFields launched;
    std::copy(values.begin(), values.end(), launched.value);
    cuda::write_fields(fields.data_ptr<double>(), launched, static_cast<int>(values.size()), current_stream());
  }

  void find_non_finite(const at::Tensor& gradients, const at::Tensor& found) const override {
    cuda::find_non_finite(is_double(gradients), gradients.const_data_ptr(), gradients.numel(), found.data_ptr<int>(),
                          current_stream());
  }

  void apply_loss_scale(const at::Tensor& scale, const at::Tensor& found, const LossScaleSteps& rule,
                        const at::Tensor& fields) const override {
    static_assert(sizeof(LossScale) == 4 * sizeof(double));
    auto* const field = fields.data_ptr<double>();
    cuda::apply_loss_scale(static_cast<LossScale*>(scale.data_ptr()), found.defined() ? found.data_ptr<int>() : nullptr,
                           rule, field + StepState::kInverseLossScale, field + StepState::kFoundInf, current_stream());
  }
};

const core::Registration<std::shared_ptr<const DeviceKernels>> kCuda(all_device_kernels(), "cuda",
                                                                     std::make_shared<CudaKernels>());

}  // namespace
}  // namespace trainyard::optim::cuda
