// Channels in another order.
#include <vector>

#include "trainyard/nn/cpu/plan/single_input_step.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

class ChannelShuffleStep : public SingleInputStep {
 public:
  ChannelShuffleStep(PlanBuilder& builder, const Unit& unit) : SingleInputStep(builder, unit) {
    keeps_bound_ = true;
    const int64_t groups = std::get<ChannelShuffle>(node_.op).groups, columns = input_map_.channels / groups;
    for (int64_t c = 0; c < input_map_.channels; ++c) {
      from_.push_back(static_cast<int32_t>(c % groups * columns + c / groups));
      to_.push_back(static_cast<int32_t>(c % columns * groups + c / columns));
    }
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }

 private:
  void run_forward(Run& run, BufferId input, BufferId output) override { permute(run, from_, input, output, false); }
  void run_backward(Run& run) override { permute(run, to_, gradient_, input_gradient_, accumulate_); }

  void permute(const Run& run, const std::vector<int32_t>& channels, BufferId from, BufferId to,
               bool accumulate) const {
    permute_channels({.shape = input_map_,
                      .dtype = dtype_,
                      .channels = channels.data(),
                      .input = run.at(from),
                      .output = run.at(to),
                      .accumulate = accumulate});
  }

  std::vector<int32_t> from_, to_;  // by channel: where its values come from, and where they went
};

}  // namespace

void make_channel_shuffle(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<ChannelShuffleStep>(builder, unit), "channel shuffle");
}

}  // namespace trainyard::nn::cpu
