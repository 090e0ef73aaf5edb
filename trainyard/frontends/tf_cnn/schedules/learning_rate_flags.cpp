#include "trainyard/frontends/tf_cnn/schedules/learning_rate_flags.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/options/flag_ranges.h"
#include "trainyard/frontends/options/number_list.h"

namespace trainyard::frontends {
namespace {

using core::FlagValues;

// Returns true where the flag has another value than its default, and one that asks for something.
bool asks(const FlagValues& values, std::string_view name) {
  if (!values.changed(name)) return false;
  const auto* text = std::get_if<std::string>(&values.value(name));
  return text == nullptr || !text->empty();
}

// What a schedule that is named has to have, and what it may have, beside its own rate and a warm-up.
struct NamedSchedule {
  const char* name;
  std::vector<const char*> needs, takes;
};

const std::vector<NamedSchedule>& named_schedules() {
  static const std::vector<NamedSchedule> all = {
      {"constant", {}, {}},
      {"piecewise", {"piecewise_learning_rate_schedule"}, {}},
      {"staircase", {"num_epochs_per_decay", "learning_rate_decay_factor"}, {"minimum_learning_rate"}},
      {"exponential", {"num_epochs_per_decay", "learning_rate_decay_factor"}, {"minimum_learning_rate"}},
      {"polynomial", {}, {"num_epochs_per_decay", "minimum_learning_rate", "polynomial_power", "polynomial_cycle"}},
      {"cosine", {}, {"minimum_learning_rate"}},
      {"cosine_restarts",
       {"num_epochs_per_decay"},
       {"learning_rate_decay_factor", "minimum_learning_rate", "restart_period_factor"}},
      {"one_cycle",
       {},
       {"one_cycle_rise", "one_cycle_shape", "one_cycle_start_divisor", "one_cycle_end_divisor",
        "one_cycle_three_phases", "one_cycle_momentum"}}};
  return all;
}

// What is of single schedules.
constexpr std::array kScheduleFlags = {"num_epochs_per_decay",
                                       "learning_rate_decay_factor",
                                       "piecewise_learning_rate_schedule",
                                       "minimum_learning_rate",
                                       "restart_period_factor",
                                       "polynomial_power",
                                       "polynomial_cycle",
                                       "one_cycle_rise",
                                       "one_cycle_shape",
                                       "one_cycle_start_divisor",
                                       "one_cycle_end_divisor",
                                       "one_cycle_three_phases",
                                       "one_cycle_momentum"};

bool contains_flag(const std::vector<const char*>& flags, std::string_view name) {
  return std::any_of(flags.begin(), flags.end(), [name](const char* flag) { return name == flag; });
}

void check_named_schedule(const FlagValues& values) {
  const std::string schedule = values.text("learning_rate_schedule");
  const auto& all = named_schedules();
  const auto named = std::find_if(all.begin(), all.end(), [&](const NamedSchedule& s) { return schedule == s.name; });
  if (named == all.end()) {  // auto: tf_cnn_benchmarks' flags say what it is
    for (const auto& [flag, owner] :
         {std::pair{"restart_period_factor", "cosine_restarts"}, std::pair{"polynomial_power", "polynomial"},
          std::pair{"polynomial_cycle", "polynomial"}, std::pair{"one_cycle_rise", "one_cycle"},
          std::pair{"one_cycle_shape", "one_cycle"}, std::pair{"one_cycle_start_divisor", "one_cycle"},
          std::pair{"one_cycle_end_divisor", "one_cycle"}, std::pair{"one_cycle_three_phases", "one_cycle"},
          std::pair{"one_cycle_momentum", "one_cycle"}}) {
      refuse_if(asks(values, flag), fmt::format("--{} is of --learning_rate_schedule={}", flag, owner));
    }
    return;
  }
  if (schedule != "piecewise") {
    refuse_if(!is_set(values, "init_learning_rate"),
              fmt::format("--learning_rate_schedule={} requires --init_learning_rate", schedule));
  }
  for (const char* flag : named->needs) {
    refuse_if(!asks(values, flag), fmt::format("--learning_rate_schedule={} requires --{}", schedule, flag));
  }
  for (const char* flag : kScheduleFlags) {
    if (contains_flag(named->needs, flag) || contains_flag(named->takes, flag)) continue;
    refuse_if(asks(values, flag), fmt::format("--learning_rate_schedule={} cannot be used with --{}", schedule, flag));
  }
  refuse_if(values.boolean("polynomial_cycle") && !asks(values, "num_epochs_per_decay"),
            "--polynomial_cycle requires --num_epochs_per_decay: the length of a cycle");
}

void check_warmup(const FlagValues& values) {
  const bool warms_up = asks(values, "num_learning_rate_warmup_epochs");
  for (const char* flag : {"learning_rate_warmup", "warmup_learning_rate"}) {
    refuse_if(asks(values, flag) && !warms_up, fmt::format("--{} requires --num_learning_rate_warmup_epochs", flag));
    refuse_if(asks(values, flag) && !is_set(values, "init_learning_rate") &&
                  !asks(values, "piecewise_learning_rate_schedule"),
              fmt::format("--{} requires --init_learning_rate or --piecewise_learning_rate_schedule", flag));
  }
  refuse_if(warms_up && values.text("learning_rate_schedule") == "one_cycle",
            "--learning_rate_schedule=one_cycle cannot be used with --num_learning_rate_warmup_epochs: a cycle "
            "begins with one (--one_cycle_rise)");
}

void check_scaling(const FlagValues& values) {
  const bool scales = values.text("learning_rate_scaling") != "none";
  refuse_if(scales && !is_set(values, "init_learning_rate") && !asks(values, "piecewise_learning_rate_schedule"),
            "--learning_rate_scaling requires --init_learning_rate or --piecewise_learning_rate_schedule: a "
            "model's own rate is scaled where it is for a batch");
  refuse_if(asks(values, "learning_rate_base_batch_size") && !scales,
            "--learning_rate_base_batch_size requires --learning_rate_scaling");
}

std::vector<double> cycle_momenta(const FlagValues& values) {
  std::vector<double> momenta = read_numbers<double>(values, "one_cycle_momentum", core::FlagKind::kReal, "floats");
  refuse_if(!momenta.empty() && momenta.size() != 2,
            fmt::format("--one_cycle_momentum needs two numbers, the least and the most, not {}", momenta.size()));
  return momenta;
}

}  // namespace

void check_learning_rate_decay(const FlagValues& values) {
  if (values.text("learning_rate_schedule") != "auto") return;  // check_schedule_flags() knows what it needs
  const bool period = asks(values, "num_epochs_per_decay");
  const bool factor = asks(values, "learning_rate_decay_factor");
  const bool complete = is_set(values, "init_learning_rate") && period && factor;
  refuse_if((period || factor) && !complete,
            "If one of num_epochs_per_decay or learning_rate_decay_factor is set, both must be setand "
            "learning_rate must be set");
  refuse_if(asks(values, "minimum_learning_rate") && !complete,
            "minimum_learning_rate requires learning_rate,num_epochs_per_decay, and learning_rate_decay_factor "
            "to be set");
}

std::optional<optim::PiecewiseEpochs> check_schedule_flags(const FlagValues& values) {
  std::optional<optim::PiecewiseEpochs> piecewise;
  if (asks(values, "piecewise_learning_rate_schedule")) {
    refuse_if(
        is_set(values, "init_learning_rate") || asks(values, "learning_rate_decay_factor") ||
            asks(values, "minimum_learning_rate") || asks(values, "num_epochs_per_decay"),
        "No other learning rate-related flags can be specified if --piecewise_learning_rate_schedule is specified");
    piecewise = optim::parse_piecewise(values.text("piecewise_learning_rate_schedule"));
  }
  check_named_schedule(values);
  check_warmup(values);
  check_scaling(values);
  cycle_momenta(values);
  return piecewise;
}

LearningRateOptions read_learning_rate(const FlagValues& values) {
  LearningRateOptions options;
  options.init_learning_rate = values.optional_real("init_learning_rate");
  options.schedule = values.text("learning_rate_schedule");
  options.num_epochs_per_decay = values.real("num_epochs_per_decay");
  options.decay_factor = values.real("learning_rate_decay_factor");
  options.minimum = values.real("minimum_learning_rate");
  options.warmup_epochs = values.real("num_learning_rate_warmup_epochs");
  options.warmup_multiplies = values.text("learning_rate_warmup") == "multiply";
  options.warmup_start = values.real("warmup_learning_rate");
  options.restart_period_factor = values.real("restart_period_factor");
  options.polynomial_power = values.real("polynomial_power");
  options.polynomial_cycle = values.boolean("polynomial_cycle");
  options.one_cycle.rise = values.real("one_cycle_rise");
  options.one_cycle.shape =
      values.text("one_cycle_shape") == "linear" ? optim::OneCycle::Shape::kLinear : optim::OneCycle::Shape::kCosine;
  options.one_cycle.start_divisor = values.real("one_cycle_start_divisor");
  options.one_cycle.end_divisor = values.real("one_cycle_end_divisor");
  options.one_cycle.three_phases = values.boolean("one_cycle_three_phases");
  if (const std::vector<double> momenta = cycle_momenta(values); !momenta.empty()) {
    options.cycle_momentum = true;
    options.one_cycle.least_momentum = momenta[0];
    options.one_cycle.most_momentum = momenta[1];
  }
  const std::string scaling = values.text("learning_rate_scaling");
  if (scaling == "linear") options.scaling = optim::BatchScaling::kLinear;
  if (scaling == "sqrt") options.scaling = optim::BatchScaling::kSquareRoot;
  options.scaling_batch_size = values.integer("learning_rate_base_batch_size");
  options.resnet_base_lr = values.optional_real("resnet_base_lr");
  return options;
}

std::vector<std::string> learning_rate_warnings(const FlagValues& values) {
  const bool own = !is_set(values, "init_learning_rate") && !asks(values, "piecewise_learning_rate_schedule");
  if (!own || !asks(values, "num_learning_rate_warmup_epochs")) return {};
  return {
      "--num_learning_rate_warmup_epochs has no effect on the model's own schedule: it is for "
      "--init_learning_rate and --piecewise_learning_rate_schedule"};
}

}  // namespace trainyard::frontends
