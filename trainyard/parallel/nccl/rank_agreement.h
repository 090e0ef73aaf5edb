// Keeps the processes of a training at the same steps: rank 0 says after each step whether there is a next one, so that
// a signal, which reaches them at different moments, ends all of them at the same step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "trainyard/core/base/export.h"
#include "trainyard/parallel/nccl/rendezvous.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::parallel {

// One thread, as the rendezvous' collective calls.
class RankAgreement {
 public:
  explicit RankAgreement(std::shared_ptr<Rendezvous> processes) : processes_(std::move(processes)) {}

  // Collective, before the training. Throws kInvalidArgument where ranks go on from different steps.
  void require_same_start(int64_t global_step);

  // Collective, after each step. `wish`: why this process wants the end; empty: it does not. Returns why all of them
  // end now, the same text on all ranks; empty: there is a next step. A rank that is not the first may be heard a step
  // later.
  std::string agree_on_end(const std::string& wish);

 private:
  std::shared_ptr<Rendezvous> processes_;
  bool told_ = false;
};

}  // namespace trainyard::parallel
TRAINYARD_EXPORT_END
