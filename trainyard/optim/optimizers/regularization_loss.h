// The regularization's part of the loss, as it is reported: weight decay and the terms of
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

#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/optimizer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

class RegularizationLoss {
 public:
  // Takes the terms and coefficients that the optimizer has now; frozen parameters count, too. The values are those of
  // the optimizer's parameters, or of `values`, which has the same declarations in the same memory. They outlive it.
  explicit RegularizationLoss(const Optimizer& optimizer) : RegularizationLoss(optimizer, optimizer.parameters()) {}
  RegularizationLoss(const Optimizer& optimizer, const nn::ParameterSet& values);

  // Return the sum of all terms, and each under its name, of the values as they are: [] float64 on their device. The
  // same bits on any number of threads.
  [[nodiscard]] [[nodiscard]] at::Tensor operator()() const;
  [[nodiscard]] [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> by_term() const;

 private:
  struct Term {
    std::string name{};
    RegularizationKind kind = RegularizationKind::kL2Half;
    // By part, 0 where the term does not apply. On a device, which knows from its parts where there is some: one.
    std::vector<double> coefficients{};
  };
  std::vector<double> on_host() const;  // by term

  const nn::ParameterSet* parameters_;
  std::vector<Term> terms_;
  std::shared_ptr<const SegmentPartTable> parts_;
  const DeviceKernels* device_;  // null on the CPU
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
