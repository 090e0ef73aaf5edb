#include "trainyard/frontends/options/learning_rate_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/option_flags.h"
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

// The required and the optional flags of a named schedule, in addition to its rate and a warm-up.
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
      {"polynomial",
       {},
       {"num_epochs_per_decay", "minimum_learning_rate", "polynomial_power", "polynomial_cycle",
        "num_learning_rate_cooldown_epochs"}},
      {"cosine", {}, {"minimum_learning_rate", "num_learning_rate_cooldown_epochs"}},
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
                                       "num_learning_rate_cooldown_epochs",
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
          std::pair{"polynomial_cycle", "polynomial"}, std::pair{"num_learning_rate_cooldown_epochs", "cosine"},
          std::pair{"one_cycle_rise", "one_cycle"}, std::pair{"one_cycle_shape", "one_cycle"},
          std::pair{"one_cycle_start_divisor", "one_cycle"}, std::pair{"one_cycle_end_divisor", "one_cycle"},
          std::pair{"one_cycle_three_phases", "one_cycle"}, std::pair{"one_cycle_momentum", "one_cycle"}}) {
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
  refuse_if(asks(values, "num_learning_rate_cooldown_epochs") && asks(values, "num_epochs_per_decay"),
            "--num_learning_rate_cooldown_epochs cannot be used with --num_epochs_per_decay: the decay ends with it");
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

// Refuses what a rate that changes by the epoch cannot be made of.
void check_updates_by_epoch(const FlagValues& values) {
  if (values.text("learning_rate_updates") != "epoch") return;
  refuse_if(!is_set(values, "init_learning_rate") && !asks(values, "piecewise_learning_rate_schedule"),
            "--learning_rate_updates=epoch requires --init_learning_rate or --piecewise_learning_rate_schedule: a "
            "model's own rate changes by steps");
  refuse_if(values.text("learning_rate_schedule") == "one_cycle",
            "--learning_rate_schedule=one_cycle cannot be used with --learning_rate_updates=epoch: a cycle counts in "
            "steps");
  for (const char* flag :
       {"num_learning_rate_warmup_epochs", "num_learning_rate_cooldown_epochs", "num_epochs_per_decay"}) {
    const double epochs = values.real(flag);
    refuse_if(epochs != std::floor(epochs),
              fmt::format("--learning_rate_updates=epoch requires whole epochs, and --{} is {}", flag, epochs));
  }
}

std::vector<double> cycle_momenta(const FlagValues& values) {
  std::vector<double> momenta = read_numbers<double>(values, "one_cycle_momentum", core::FlagKind::kReal, "floats");
  refuse_if(!momenta.empty() && momenta.size() != 2,
            fmt::format("--one_cycle_momentum needs two numbers, the least and the most, not {}", momenta.size()));
  return momenta;
}

// In addition to those of tf_cnn_benchmarks.
void add_schedule_flags(core::OptionFlags<LearningRateOptions>& flags) {
  using L = LearningRateOptions;
  using Shape = optim::OneCycle::Shape;
  const auto of_cycle = [](auto member) {
    return [member](L & o) -> auto& {
      return o.one_cycle.*member;
    };
  };
  using Warmup = L::Warmup;
  flags.choice("learning_rate_warmup", &L::warmup,
               std::vector<std::pair<std::string, Warmup>>{
                   {"replace", Warmup::kReplace}, {"multiply", Warmup::kMultiply}, {"cover", Warmup::kCover}},
               "replace: the schedule begins behind the warm-up; multiply: it begins at step 0, times a factor that "
               "rises to 1; cover: it begins at step 0 and is followed from the end of the warm-up on, as in timm");
  flags.add("warmup_learning_rate", &L::warmup_start, "the rate that a warm-up starts with");
  flags.choice("learning_rate_updates", &L::changes_by_epoch,
               std::vector<std::pair<std::string, bool>>{{"step", false}, {"epoch", true}},
               "when the rate changes: at each step, or at the beginning of each epoch, as schedulers of PyTorch and "
               "timm do that are stepped once an epoch; then all lengths of the schedule are whole epochs");
  flags.choice(
      "learning_rate_scaling", &L::scaling,
      std::vector<std::pair<std::string, std::optional<optim::BatchScaling>>>{
          {"none", std::nullopt}, {"linear", optim::BatchScaling::kLinear}, {"sqrt", optim::BatchScaling::kSquareRoot}},
      "multiply init_learning_rate or the piecewise rates by global batch / learning_rate_base_batch_size, or "
      "its square root; divided by the number of replicas where their gradients are summed");
  flags.add("learning_rate_base_batch_size", &L::scaling_batch_size,
            "with learning_rate_scaling: the batch that the rate is for");
  flags.add("restart_period_factor", &L::restart_period_factor,
            "with cosine_restarts, whose first period is num_epochs_per_decay: each period is so many times as long as "
            "the one before; learning_rate_decay_factor multiplies the rate at each restart");
  flags.add("polynomial_power", &L::polynomial_power, "with polynomial: the power; 1 is a line");
  flags.add("polynomial_cycle", &L::polynomial_cycle,
            "with polynomial and num_epochs_per_decay: rise again after each such period, as TensorFlow's cycle");
  flags
      .add("num_learning_rate_cooldown_epochs", &L::cooldown_epochs,
           "with cosine, and with polynomial over the run: the rate is at minimum_learning_rate in these last epochs, "
           "as timm's cooldown")
      .bounds(0, 1e9);
  flags.add("one_cycle_rise", of_cycle(&optim::OneCycle::rise),
            "with one_cycle: the part of the run in which the rate rises");
  flags.choice("one_cycle_shape", of_cycle(&optim::OneCycle::shape),
               std::vector<std::pair<std::string, Shape>>{{"cos", Shape::kCosine}, {"linear", Shape::kLinear}},
               "with one_cycle: how rate and momentum move");
  flags.add("one_cycle_start_divisor", of_cycle(&optim::OneCycle::start_divisor),
            "with one_cycle: the rate begins with init_learning_rate / this");
  flags.add("one_cycle_end_divisor", of_cycle(&optim::OneCycle::end_divisor),
            "with one_cycle: the rate ends with what it began with / this");
  flags.add("one_cycle_three_phases", of_cycle(&optim::OneCycle::three_phases),
            "with one_cycle: fall as long as it rose, to where it began, and from there to the end");
  flags.table()
      .list("one_cycle_momentum",
            "\"LEAST,MOST\", with one_cycle: the momentum (of adam and its kin: beta1) falls to LEAST while the rate "
            "rises, and rises to MOST while it falls; unset: it stays. PyTorch's default is 0.85,0.95")
      .group(flags.group());
  flags.also([](const FlagValues& values, L& options) {
    const std::vector<double> momenta = cycle_momenta(values);
    if (momenta.empty()) return;
    options.cycle_momentum = true;
    options.one_cycle.least_momentum = momenta[0];
    options.one_cycle.most_momentum = momenta[1];
  });
}

core::OptionFlags<LearningRateOptions> make_rate_flags() {
  using L = LearningRateOptions;
  core::OptionFlags<L> flags("Learning rate");
  flags.add("init_learning_rate", &L::init_learning_rate,
            "the learning rate, or where its decay starts; unset: the model's schedule");
  flags.table()
      .text("piecewise_learning_rate_schedule", std::nullopt,
            "\"LR0;E1;LR1;...;En;LRn\": rate LR0, from epoch E1 on LR1, and so on; epochs are whole numbers")
      .group(flags.group());
  flags.add("num_epochs_per_decay", &L::num_epochs_per_decay, "epochs between two decays of init_learning_rate");
  flags.add("learning_rate_decay_factor", &L::decay_factor, "the factor of each decay");
  flags.add("minimum_learning_rate", &L::minimum, "the decay stops here");
  flags.add("num_learning_rate_warmup_epochs", &L::warmup_epochs,
            "the rate rises from 0 in these epochs; with init_learning_rate or a piecewise schedule only");
  flags.choice(
      "learning_rate_schedule", &L::schedule,
      {"auto", "constant", "piecewise", "staircase", "exponential", "polynomial", "cosine", "cosine_restarts",
       "one_cycle"},
      "auto: what the other flags say. From init_learning_rate, after the warm-up: polynomial and cosine fall to "
      "minimum_learning_rate over the run, cosine_restarts again and again (SGDR). staircase and exponential "
      "multiply by learning_rate_decay_factor every num_epochs_per_decay, at once or smoothly. one_cycle rises "
      "to init_learning_rate and falls, as PyTorch's OneCycleLR");
  add_schedule_flags(flags);
  flags.table()
      .boolean("compute_lr_on_cpu", false, "compute the rate on the host")
      .group(flags.group())
      .translated("the rate is always computed on the host: same result either way");
  flags.also(
      [](const FlagValues& values, L& options) { options.resnet_base_lr = values.optional_real("resnet_base_lr"); });
  return flags;
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
  check_updates_by_epoch(values);
  cycle_momenta(values);
  return piecewise;
}

void declare_learning_rate_flags(core::FlagTable& table) {
  core::flags_of<make_rate_flags>().declare(table);
}

LearningRateOptions read_learning_rate(const FlagValues& values) {
  return core::flags_of<make_rate_flags>().read(values);
}

std::vector<std::string> learning_rate_warnings(const FlagValues& values) {
  const bool own = !is_set(values, "init_learning_rate") && !asks(values, "piecewise_learning_rate_schedule");
  if (!own || !asks(values, "num_learning_rate_warmup_epochs")) return {};
  return {
      "--num_learning_rate_warmup_epochs has no effect on the model's own schedule: it is for "
      "--init_learning_rate and --piecewise_learning_rate_schedule"};
}

}  // namespace trainyard::frontends
