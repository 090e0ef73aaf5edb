// Computes the regularization's part of the loss for reports: weight decay and the terms of
// OptimizerOptions::regularization.
//
//   const RegularizationLoss loss(*optimizer);
//   for (const auto& [name, value] : loss.by_term()) ...    // {"weight_decay", [] float64}, ...
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/optimizer.h"

namespace trainyard::optim {

class RegularizationLoss {
 public:
  // Uses the current terms and coefficients of the optimizer, frozen parameters included, and the values of the
  // optimizer's parameters, or of `values`, which has the same declarations in the same memory. Both must outlive it.
  explicit RegularizationLoss(const Optimizer& optimizer) : RegularizationLoss(optimizer, optimizer.parameters()) {}
  RegularizationLoss(const Optimizer& optimizer, const nn::ParameterSet& values);

  // Return the sum of all terms, and each term by name, for the current values: [] float64 on their device. The bits do
  // not depend on the number of threads.
  [[nodiscard]] at::Tensor operator()() const;
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> by_term() const;

 private:
  struct Term {
    std::string name{};
    RegularizationKind kind = RegularizationKind::kL2Half;
    // By part, 0 when the term does not apply. On a device, whose parts tell which decay, a single number.
    std::vector<double> coefficients{};
  };
  std::vector<double> on_host() const;  // by term

  const nn::ParameterSet* parameters_;
  std::vector<Term> terms_;
  std::shared_ptr<const SegmentPartTable> parts_;
  const DeviceKernels* device_;  // null on the CPU
};

}  // namespace trainyard::optim
