#include "trainyard/frontends/options/flag_ranges.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/core/threads/thread_limit.h"
#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kSteps = int64_t{1} << 53;                   // up to here a double counts single steps
constexpr int64_t kImages = int64_t{1} << 20;                  // of a batch of a device
constexpr int64_t kSeconds = 1'000'000'000;                    // 31 years
constexpr int64_t kBatchesHeld = 1024;                         // that wait somewhere
constexpr int64_t kFewestMostReplicas = 64;                    // on machines with fewer cores
constexpr int64_t kInt = std::numeric_limits<int32_t>::max();  // as wide as TensorFlow's own field
constexpr double kEpochs = 1e9;

struct IntegerRange {
  const char* flag;
  int64_t least, most;
};

enum class End { kIncluded, kExcluded };

struct RealRange {
  const char* flag;
  double least, most;
  End lower = End::kIncluded, upper = End::kIncluded;
};

constexpr IntegerRange kIntegers[] = {
    {"batch_size", 0, kImages},
    {"eval_batch_size", 0, kImages},
    {"num_batches", 0, kSteps},
    {"num_eval_batches", 0, kSteps},
    {"num_warmup_batches", 0, kSteps},
    {"batch_group_size", 1, kBatchesHeld},
    {"autotune_threshold", 0, 999'999},  // the warm-up has five times its square
    {"eval_interval_secs", 0, kSeconds},
    {"eval_during_training_every_n_steps", 1, kSteps},
    {"display_every", 1, kSteps},
    {"save_model_secs", 0, kSeconds},
    {"save_model_steps", 0, kSteps},
    {"max_ckpts_to_keep", 0, kInt},
    {"save_summaries_steps", 0, kSteps},
    {"summary_verbosity", 0, kInt},  // above 3 it is 3
    {"datasets_prefetch_buffer_size", 1, kBatchesHeld},
    {"multi_device_iterator_max_buffer_size", 1, kBatchesHeld},
    {"datasets_parallel_interleave_cycle_length", -1, kInt},  // -1 is tf.data's AUTOTUNE
    {"datasets_parallel_interleave_prefetch", -1, kInt},
    {"num_inter_threads", 0, kInt},
    {"kmp_blocktime", 0, kInt},
    {"kmp_settings", 0, 1},
    {"per_gpu_thread_count", 0, kBatchesHeld},
    {"fp16_inc_loss_scale_every_n", 1, kSteps},
    {"loss_scale_lower_after", 1, kSteps},
    {"loss_scale_most_skips", 0, kSteps},
    {"learning_rate_base_batch_size", 1, kSteps},
    {"muon_steps", 1, 99},
    {"lookahead_steps", 0, kSteps},
    {"allreduce_merge_scope", 1, kInt},
    {"gradient_repacking", 0, parallel::GradientPacking::kMostParts},
    {"agg_small_grads_max_bytes", 0, std::numeric_limits<int64_t>::max()},
    {"agg_small_grads_max_group", 0, kSteps},
    {"gpu_kt_max_interval", 0, kInt},
    {"gpu_kt_max_bytes", 0, kSteps},
    {"gpu_kt_max_pending", 0, kInt},
    {"trt_max_workspace_size_bytes", 0, std::numeric_limits<int64_t>::max()},
};

constexpr double kNoEnd = std::numeric_limits<double>::max();

constexpr RealRange kReals[] = {
    {"num_epochs", 0, kEpochs},
    {"num_eval_epochs", 0, kEpochs},
    {"stop_after_epochs", 0, kEpochs},
    {"stop_at_top_1_accuracy", 0, 1},
    {"eval_during_training_every_n_epochs", 0, kEpochs},
    {"num_epochs_per_decay", 0, kEpochs},
    {"num_learning_rate_warmup_epochs", 0, kEpochs},
    {"init_learning_rate", 0, kNoEnd},
    {"learning_rate_decay_factor", 0, kNoEnd},
    {"minimum_learning_rate", 0, kNoEnd},
    {"resnet_base_lr", 0, kNoEnd},
    {"warmup_learning_rate", 0, kNoEnd},
    {"restart_period_factor", 1, kNoEnd},
    {"polynomial_power", 0, kNoEnd},
    {"one_cycle_rise", 0, 1, End::kExcluded, End::kExcluded},
    {"one_cycle_start_divisor", 0, kNoEnd, End::kExcluded},
    {"one_cycle_end_divisor", 0, kNoEnd, End::kExcluded},
    {"layer_decay", 0, 1, End::kExcluded},
    {"sam_rho", 0, kNoEnd},
    {"weight_decay", 0, kNoEnd},
    {"gradient_clip", 0, kNoEnd, End::kExcluded},
    {"clip_norm", 0, kNoEnd, End::kExcluded},
    {"clip_global_norm", 0, kNoEnd, End::kExcluded},
    {"adaptive_clip", 0, kNoEnd, End::kExcluded},
    {"momentum_dampening", 0, 1},
    {"rmsprop_decay", 0, 1},
    {"rmsprop_momentum", 0, 1},
    {"rmsprop_epsilon", 0, kNoEnd, End::kExcluded},
    {"adam_beta1", 0, 1, End::kIncluded, End::kExcluded},
    {"adam_beta2", 0, 1, End::kIncluded, End::kExcluded},
    {"adam_epsilon", 0, kNoEnd, End::kExcluded},
    {"lars_trust_coefficient", 0, kNoEnd, End::kExcluded},
    {"muon_momentum", 0, 1, End::kIncluded, End::kExcluded},
    {"lion_beta1", 0, 1, End::kIncluded, End::kExcluded},
    {"lion_beta2", 0, 1, End::kIncluded, End::kExcluded},
    {"lookahead_alpha", 0, 1, End::kExcluded},
    {"lookahead_final_alpha", 0, 1, End::kExcluded},
};

template <typename Number>
void require_in_range(const char* flag, Number value, Number least, Number most) {
  if (value < least) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      least == 0 ? fmt::format("--{} must not be negative, as {} is", flag, value)
                                 : fmt::format("--{} must be at least {}, not {}", flag, least, value));
  }
  if (value > most) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("--{} must be at most {}, not {}", flag, most, value));
  }
}

void check_integer(const core::FlagValues& values, const IntegerRange& range) {
  if (values.table().find(range.flag) == nullptr || values.is_word(range.flag)) return;
  if (const auto value = values.optional_integer(range.flag)) {
    require_in_range(range.flag, *value, range.least, range.most);
  }
}

void check_real(const core::FlagValues& values, const RealRange& range) {
  if (values.table().find(range.flag) == nullptr) return;
  const std::optional<double> value = values.optional_real(range.flag);
  if (!value) return;
  require_in_range(range.flag, *value, range.least, range.most);
  const bool at_least = range.lower == End::kExcluded && *value == range.least;
  if (at_least || (range.upper == End::kExcluded && *value == range.most)) {
    throw core::Error(core::ErrorCode::kInvalidArgument, fmt::format("--{} must be {} {}, not {}", range.flag,
                                                                     at_least ? "above" : "below", *value, *value));
  }
}

// Those that depend on the machine.
std::array<IntegerRange, 3> ranges_of_machine() {
  const int64_t threads = core::most_threads();
  const int64_t replicas = std::max<int64_t>(core::available_cores(), kFewestMostReplicas);
  return {{{"num_gpus", 1, replicas}, {"num_intra_threads", 0, threads}, {"datasets_num_private_threads", 1, threads}}};
}

}  // namespace

void check_flag_ranges(const core::FlagValues& values) {
  for (const IntegerRange& range : ranges_of_machine()) check_integer(values, range);
  for (const IntegerRange& range : kIntegers) check_integer(values, range);
  for (const RealRange& range : kReals) check_real(values, range);
}

FlagRange flag_range(const core::FlagSpec& spec) {
  FlagRange range{.above_least = spec.above_lower, .below_most = spec.below_upper};
  range.least = spec.lower_bound;
  range.most = spec.upper_bound;
  // The narrower one counts.
  const auto narrow = [&](double least, double most, bool above_least, bool below_most) {
    if (!range.least || least > *range.least || (least == *range.least && above_least)) {
      range.least = least;
      range.above_least = above_least;
    }
    if (most != kNoEnd && (!range.most || most < *range.most || (most == *range.most && below_most))) {
      range.most = most;
      range.below_most = below_most;
    }
  };
  const auto narrow_by = [&](const IntegerRange& each) {
    if (spec.name == each.flag) {
      narrow(static_cast<double>(each.least), static_cast<double>(each.most), false, false);
    }
  };
  for (const IntegerRange& each : ranges_of_machine()) narrow_by(each);
  for (const IntegerRange& each : kIntegers) narrow_by(each);
  for (const RealRange& each : kReals) {
    if (spec.name != each.flag) continue;
    narrow(each.least, each.most, each.lower == End::kExcluded, each.upper == End::kExcluded);
  }
  return range;
}

}  // namespace trainyard::frontends
