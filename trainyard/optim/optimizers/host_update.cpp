#include "trainyard/optim/optimizers/host_update.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <variant>
#include <vector>

#include <ATen/Parallel.h>

#include "trainyard/optim/cpu/kernels.h"
#include "trainyard/optim/optimizers/complete_gradients.h"
#include "trainyard/optim/optimizers/flat_update.h"
#include "trainyard/optim/optimizers/norm_clipper.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/segment_parts.h"

namespace trainyard::optim {
namespace {

// One step with parameters in the host's memory. T is their type.
template <typename T>
class HostStep {
 public:
  HostStep(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
           const HostSelection& selection = {})
      : optimizer_(optimizer),
        fields_(state.tensor()),
        selected_(selection.segments),
        values_((selection.values.defined() ? selection.values : optimizer.parameters().values())
                    .template mutable_data_ptr<T>()),
        gradients_(gradients.mutable_data_ptr<T>()),
        first_(optimizer.part().begin) {
    slot_count_ = std::min(optimizer.slots().size(), kMostSlots);
    for (size_t s = 0; s < slot_count_; ++s) {
      slots_[s] = optimizer.slots()[s].values.template mutable_data_ptr<T>();
    }
  }

  bool skipped() const { return field(StepState::kFoundInf) != 0.0; }
  bool selects(size_t segment) const { return selected_ == nullptr || (*selected_)[segment]; }

  // The arguments of a step on a segment's elements. `rate_factor` multiplies the factor of the parameter's group.
  cpu::Part<T> part(size_t segment, int64_t begin, int64_t count, double rate_factor = 1.0) const {
    const bool complete = optimizer_.gradients_complete();
    const double in_gradient = complete ? 0.0 : optimizer_.weight_decay_factor();
    const double rate = field(StepState::kLearningRate) * optimizer_.rate_factor(segment);
    const double decay = optimizer_.update_decay(segment);
    cpu::Part<T> part{.values = values_ + begin,
                      .gradients = gradients_ + begin,
                      .count = count,
                      .inverse_loss_scale = complete ? T(1) : static_cast<T>(field(StepState::kInverseLossScale)),
                      .l2_rate = static_cast<T>(optimizer_.l2_rate(segment) * in_gradient),
                      .l1_rate = static_cast<T>(optimizer_.l1_rate(segment) * in_gradient),
                      .clip = static_cast<T>(clip_of(optimizer_)),
                      .learning_rate = static_cast<T>(rate * rate_factor),
                      .keep = static_cast<T>(1 - rate * decay),
                      .decay = static_cast<T>(decay)};
    for (size_t s = 0; s < slot_count_; ++s) part.slots[s] = slots_[s] + (begin - first_);
    return part;
  }

  // Calls work(part) for the elements of a part: for all of them, or where gradients are clipped by norm for each run
  // of one factor. A factor needs no pass of its own.
  template <typename Work>
  void for_each_run(const SegmentPart& of, double rate_factor, const Work& work) const {
    const size_t segment = optimizer_.own()[static_cast<size_t>(of.segment)];
    const NormClipper* const clipper = optimizer_.gradients_complete() ? nullptr : optimizer_.norm_clipper();
    if (clipper == nullptr) return work(part(segment, of.begin, of.count, rate_factor));
    clipper->for_each_run(segment, of.begin, of.begin + of.count, [&](double factor, int64_t first, int64_t last) {
      cpu::Part<T> run = part(segment, first, last - first, rate_factor);
      run.inverse_loss_scale *= static_cast<T>(factor);
      if (clipper->clips_regularization()) {
        run.l2_rate *= static_cast<T>(factor);
        run.l1_rate *= static_cast<T>(factor);
      }
      work(run);
    });
  }

 private:
  double field(StepState::Field field) const { return fields_.const_data_ptr<double>()[field]; }

  const Optimizer& optimizer_;
  at::Tensor fields_;
  const std::vector<bool>* selected_;
  T* values_;
  T* gradients_;
  int64_t first_;  // element of the slots
  T* slots_[kMostSlots] = {};
  size_t slot_count_ = 0;
};

// A formula in one update, which it counts if it counts any: one for all parameters, but for those that have missed
// updates of an optimizer that counts by parameter.
template <typename Formula>
class FormulaOfUpdate {
 public:
  FormulaOfUpdate(const Optimizer& optimizer, const Formula& given) : common_(given) {
    if constexpr (kCountsUpdates<Formula>) {
      auto* const fields = optimizer.update_count().template mutable_data_ptr<double>();
      const UpdateCount before{.updates = fields[0], .momentum_product = fields[1]};
      UpdateCount count = before;
      common_.begin_update(count);
      fields[0] = count.updates;
      fields[1] = count.momentum_product;
      if (optimizer.missed_updates().defined()) count_by_parameter(optimizer, given, before, count);
    }
  }

  // `place`: the parameter's, in Optimizer::own().
  const Formula& of(size_t place) const { return by_parameter_.empty() ? common_ : by_parameter_[place]; }

 private:
  void count_by_parameter(const Optimizer& optimizer, const Formula& given, const UpdateCount& before,
                          const UpdateCount& after) {
    auto* const missed = optimizer.missed_updates().template mutable_data_ptr<double>();
    const std::vector<size_t>& own = optimizer.own();
    double last_missed = 0;  // most have missed as many as the one before
    Formula last = common_;
    for (size_t p = 0; p < own.size(); ++p) {
      if (!optimizer.trainable(own[p])) {
        missed[p] += after.updates - before.updates;
      } else if (missed[p] != 0) {
        if (by_parameter_.empty()) by_parameter_.assign(own.size(), common_);
        if (missed[p] != last_missed) {
          UpdateCount count{.updates = std::max(0.0, before.updates - missed[p]),
                            .momentum_product = before.momentum_product};
          if constexpr (kReadsMomentumProduct<Formula>) count.momentum_product = given.momentum_product(count.updates);
          last = given;
          last.begin_update(count);
          last_missed = missed[p];
        }
        by_parameter_[p] = last;
      }
    }
  }

  Formula common_;
  std::vector<Formula> by_parameter_;  // by place in own(); empty: common_ is that of all
};

template <typename T, typename Formula>
void update_elements(const Optimizer& optimizer, const HostStep<T>& step, const FormulaOfUpdate<Formula>& formula) {
  for_each_part(optimizer, [&](const SegmentPart& part, size_t) {
    const auto place = static_cast<size_t>(part.segment);
    if (!step.selects(optimizer.own()[place])) return;
    step.for_each_run(part, 1.0, [&](const cpu::Part<T>& run) { cpu::update_part(run, formula.of(place)); });
  });
}

// Each parameter's ratio of norms, by place in own().
template <typename T, typename Formula>
std::vector<double> measured_ratios(const Optimizer& optimizer, const HostStep<T>& step,
                                    const FormulaOfUpdate<Formula>& formula) {
  const SegmentPartTable& parts = optimizer.parts();
  std::vector<cpu::Squares> sums(static_cast<size_t>(parts.count)), totals(optimizer.own().size());
  for_each_part(optimizer, [&](const SegmentPart& part, size_t p) {
    step.for_each_run(part, 1.0, [&](const cpu::Part<T>& run) {
      const cpu::Squares squares = cpu::measure_part(run, formula.of(static_cast<size_t>(part.segment)));
      sums[p].weights += squares.weights;
      sums[p].measured += squares.measured;
    });
  });
  for (size_t p = 0; p < sums.size(); ++p) {
    cpu::Squares& total = totals[static_cast<size_t>(parts.data()[p].segment)];
    total.weights += sums[p].weights;
    total.measured += sums[p].measured;
  }
  std::vector<double> ratios(totals.size(), 1.0);
  for (size_t s = 0; s < totals.size(); ++s) {
    const size_t segment = optimizer.own()[s];
    if (!optimizer.adapts(segment) || !(totals[s].weights > 0) || !(totals[s].measured > 0)) continue;
    ratios[s] = formula.of(s).ratio(std::sqrt(totals[s].weights), std::sqrt(totals[s].measured),
                                    optimizer.update_decay(segment));
  }
  return ratios;
}

template <typename T, typename Formula>
void update_by_norms(const Optimizer& optimizer, const HostStep<T>& step, const FormulaOfUpdate<Formula>& formula) {
  const std::vector<double> ratios = measured_ratios(optimizer, step, formula);
  for_each_part(optimizer, [&](const SegmentPart& part, size_t) {
    const auto place = static_cast<size_t>(part.segment);
    step.for_each_run(part, ratios[place], [&](const cpu::Part<T>& run) { cpu::update_part(run, formula.of(place)); });
  });
}

template <typename T>
void update_as(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
               const AnyFormula& formula, const HostSelection& selection) {
  const HostStep<T> step(optimizer, state, gradients, selection);
  if (step.skipped()) return;
  std::visit(
      [&](const auto& known) {
        using Formula = std::remove_cvref_t<decltype(known)>;
        const FormulaOfUpdate<Formula> counted(optimizer, known);
        if constexpr (kScaledByNorms<Formula>) {
          update_by_norms(optimizer, step, counted);
        } else {
          update_elements(optimizer, step, counted);
        }
      },
      formula);
}

template <typename T>
void update_part_as(const Optimizer& optimizer, const StepState& state, const Optimizer::PartSteps& steps,
                    const AnyFormula& formula) {
  const HostStep<T> step(optimizer, state, optimizer.parameters().gradients());
  if (step.skipped()) return;
  std::visit(
      [&](const auto& known) {
        using Formula = std::remove_cvref_t<decltype(known)>;
        if constexpr (!kScaledByNorms<Formula>) {
          const FormulaOfUpdate<Formula> counted(optimizer, known);
          for_each_part(optimizer, [&](const SegmentPart& part, size_t) {
            const auto place = static_cast<size_t>(part.segment);
            const size_t segment = optimizer.own()[place];
            const int64_t end = part.begin + part.count;
            for (int64_t begin = part.begin; begin < end; begin += Optimizer::PartSteps::kMostElements) {
              const int64_t count = std::min(Optimizer::PartSteps::kMostElements, end - begin);
              cpu::Part<T> run = step.part(segment, begin, count);
              run.gradients = static_cast<T*>(steps.gradients(begin, count));
              cpu::update_part(run, counted.of(place));
              steps.updated(begin, count);
            }
          });
        }
      },
      formula);
}

template <typename T>
void complete_as(const Optimizer& optimizer, const StepState& state) {
  const HostStep<T> step(optimizer, state, optimizer.parameters().gradients());
  for_each_part(optimizer, [&](const SegmentPart& part, size_t) {
    step.for_each_run(part, 1.0, [](const cpu::Part<T>& run) { cpu::complete_part(run); });
  });
}

template <typename T>
void measure_as(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
                std::span<MeasuredPart> parts, bool with_regularization, bool with_weights) {
  constexpr int64_t kPartsAThread = 32;  // at least
  const HostStep<T> step(optimizer, state, gradients);
  at::parallel_for(0, std::ssize(parts), kPartsAThread, [&](int64_t first, int64_t last) {
    for (auto p = static_cast<size_t>(first); p < static_cast<size_t>(last); ++p) {
      MeasuredPart& measured = parts[p];
      measured.weight_squares = measured.gradient_squares = 0;
      if (!optimizer.trainable(measured.segment)) continue;
      cpu::Part<T> part = step.part(measured.segment, measured.begin, measured.count);
      if (!with_regularization) part.l2_rate = part.l1_rate = 0;
      const bool reads_values = with_weights || part.l2_rate != 0 || part.l1_rate != 0;
      const cpu::Squares squares = cpu::measure_gradient_part(part, reads_values);
      measured.weight_squares = squares.weights;
      measured.gradient_squares = squares.measured;
    }
  });
}

template <typename T>
void exchange_as(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients, at::Tensor& delayed) {
  if (HostStep<T>(optimizer, state, gradients).skipped()) return;
  T *const now = gradients.mutable_data_ptr<T>(), *const before = delayed.mutable_data_ptr<T>();
  for_each_part(optimizer, [&](const SegmentPart& part, size_t) {
    std::swap_ranges(now + part.begin, now + part.begin + part.count, before + part.begin);
  });
}

bool is_double(const Optimizer& optimizer) {
  return optimizer.parameters().values().scalar_type() == at::kDouble;
}

}  // namespace

void measure_on_host(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
                     std::span<MeasuredPart> parts, bool with_regularization, bool with_weights) {
  is_double(optimizer) ? measure_as<double>(optimizer, state, gradients, parts, with_regularization, with_weights)
                       : measure_as<float>(optimizer, state, gradients, parts, with_regularization, with_weights);
}

void update_on_host(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients, AnyFormula formula,
                    const HostSelection& selection) {
  is_double(optimizer) ? update_as<double>(optimizer, state, gradients, formula, selection)
                       : update_as<float>(optimizer, state, gradients, formula, selection);
}

void update_part_on_host(const Optimizer& optimizer, const StepState& state, const Optimizer::PartSteps& steps,
                         AnyFormula formula) {
  is_double(optimizer) ? update_part_as<double>(optimizer, state, steps, formula)
                       : update_part_as<float>(optimizer, state, steps, formula);
}

void exchange_on_host(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
                      at::Tensor& delayed) {
  is_double(optimizer) ? exchange_as<double>(optimizer, state, gradients, delayed)
                       : exchange_as<float>(optimizer, state, gradients, delayed);
}

void complete_on_host(const Optimizer& optimizer, const StepState& state) {
  is_double(optimizer) ? complete_as<double>(optimizer, state) : complete_as<float>(optimizer, state);
}

}  // namespace trainyard::optim
