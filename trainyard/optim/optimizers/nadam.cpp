// Adam with Nesterov's momentum (Dozat, "Incorporating Nesterov momentum into Adam", 2016), in two forms that differ in
// the schedule of their momentum alone; optimizer.h says which.
#include <cmath>
#include <cstdint>

#include "trainyard/optim/optimizers/flat_update.h"
#include "trainyard/optim/optimizers/optimizer.h"

namespace trainyard::optim {
namespace {

// One update with the numbers that depend on its count. Not in AnyFormula: the count is the host's.
struct NadamFormula {
  static constexpr size_t kSlots = 2;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  double gradient_factor = 0, mean_factor = 0;  // of g and m in the step
  double square_correction = 0;                 // 1 / (1 - beta2^t)
  template <typename T>
  T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    slots[0] = static_cast<T>(beta1) * slots[0] + static_cast<T>(1 - beta1) * gradient;
    slots[1] = static_cast<T>(beta2) * slots[1] + static_cast<T>(1 - beta2) * gradient * gradient;
    const T step = static_cast<T>(gradient_factor) * gradient + static_cast<T>(mean_factor) * slots[0];
    const T root = std::sqrt(slots[1] * static_cast<T>(square_correction)) + static_cast<T>(epsilon);
    return weight - learning_rate * step / root;
  }
};

class Nadam : public Optimizer {
 public:
  // The momentum of update t is beta1 * (1 - 0.5 * 0.96^(t * decay)).
  Nadam(nn::ParameterSet& parameters, const OptimizerOptions& options, double decay)
      : Optimizer(parameters, options), decay_(decay), mean_(add_slot("mean")), square_(add_slot("mean_square")) {
    require_host_memory("updates of Nadam");
  }

  std::vector<std::string> hyperparameter_names() const override {
    return {"beta1", "beta2", "epsilon", "weight_decay"};
  }

  void save(core::StateWriter& writer) const override {
    Optimizer::save(writer);
    const std::string first = first_own_parameter();
    if (first.empty()) return;
    writer.integer(first + kUpdates, updates_);
    writer.real(first + kMomentumProduct, momentum_product_);
  }
  void load(const core::StateReader& reader) override {
    Optimizer::load(reader);
    const std::string first = first_own_parameter();
    if (first.empty()) return;
    updates_ = reader.integer(first + kUpdates);
    momentum_product_ = reader.real(first + kMomentumProduct);
  }

 private:
  static constexpr const char* kUpdates = ".nadam_updates";
  static constexpr const char* kMomentumProduct = ".nadam_momentum_product";

  // Numbers of the whole optimizer are saved behind its first parameter's name, so that optimizers of other parameters
  // can save beside it.
  std::string first_own_parameter() const {
    const std::vector<nn::Segment> own = own_segments();
    return own.empty() ? "" : own.front().spec.name;
  }

  double momentum_of(int64_t update) const {
    return options().beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(update) * decay_));
  }

  void update(const StepState& state, const at::Tensor& gradients) override {
    const int64_t t = updates_ + 1;
    const double momentum = momentum_of(t), next_momentum = momentum_of(t + 1);
    const double product = momentum_product_ * momentum;
    flat_update(*this, state, gradients, {mean_, square_},
                NadamFormula{.beta1 = options().beta1,
                             .beta2 = options().beta2,
                             .epsilon = options().epsilon,
                             .gradient_factor = (1 - momentum) / (1 - product),
                             .mean_factor = next_momentum / (1 - product * next_momentum),
                             .square_correction = 1 / (1 - std::pow(options().beta2, static_cast<double>(t)))});
    if (state.read().found_inf) return;
    updates_ = t;
    momentum_product_ = product;
  }

  double decay_;
  at::Tensor mean_, square_;
  int64_t updates_ = 0;            // that were not skipped
  double momentum_product_ = 1.0;  // of the momenta of those
};

OptimizerFactory make_nadam(double decay) {
  return [decay](nn::ParameterSet& parameters, const OptimizerOptions& options) {
    return std::make_unique<Nadam>(parameters, options, decay);
  };
}

const core::Registration kNadam(optimizers(), "nadam", make_nadam(0.004));
const core::Registration kKerasNadam(optimizers(), "keras_nadam", make_nadam(1.0));

}  // namespace
}  // namespace trainyard::optim
