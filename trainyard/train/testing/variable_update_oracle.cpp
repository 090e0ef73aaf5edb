#include "trainyard/train/testing/variable_update_oracle.h"

#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/testing/numbers.h"
#include "trainyard/train/testing/memory_source.h"
#include "trainyard/train/testing/two_scalars.h"

namespace trainyard::train {
namespace {

constexpr double kSixteenth = 1.0 / 16;

// Selects the first of two consecutive numbers.
double first_input(const OracleLayout& layout, int step, int micro_step, int replica) {
  return -1.0 + 2.0 * ((step * layout.micro_steps + micro_step) * layout.all() + replica);
}

// One of the two variables, with what its optimizer keeps of it.
struct Variable {
  double value = 0;
  double first = 0, second = 0, third = 0;  // slots
  double product = 1;                       // of Nadam's momenta
  int updates = 0;
};

using Numbers = OracleNumbers;
// An optimizer's update by its paper or its program's documentation. `g` has the weight decay in it where that is a
// part of the loss; `decay` is for those that treat it themselves.
using Update = std::function<void(Variable& w, double g, double decay, const Numbers& o)>;

double corrected(double mean, double beta, int updates) {
  return mean / (1 - std::pow(beta, updates));
}

void move_means(Variable& w, double g, const Numbers& o) {
  w.first = o.beta1 * w.first + (1 - o.beta1) * g;
  w.second = o.beta2 * w.second + (1 - o.beta2) * g * g;
}

// Kingma and Ba, algorithm 1; with `hat`, the form at the end of their section 2.
void adam(Variable& w, double g, const Numbers& o, bool hat) {
  move_means(w, g, o);
  const int t = w.updates;
  if (hat) {
    const double rate = kSixteenth * std::sqrt(1 - std::pow(o.beta2, t)) / (1 - std::pow(o.beta1, t));
    w.value -= rate * w.first / (std::sqrt(w.second) + o.epsilon);
  } else {
    w.value -= kSixteenth * corrected(w.first, o.beta1, t) / (std::sqrt(corrected(w.second, o.beta2, t)) + o.epsilon);
  }
}

// Dozat; PyTorch's documentation of NAdam, whose psi Keras has as 1.
void nadam(Variable& w, double g, const Numbers& o, double psi) {
  const int t = w.updates;
  const auto momentum = [&](int update) { return o.beta1 * (1 - 0.5 * std::pow(0.96, update * psi)); };
  move_means(w, g, o);
  w.product *= momentum(t);
  const double mean =
      momentum(t + 1) * w.first / (1 - w.product * momentum(t + 1)) + (1 - momentum(t)) * g / (1 - w.product);
  w.value -= kSixteenth * mean / (std::sqrt(corrected(w.second, o.beta2, t)) + o.epsilon);
}

double moved_square(Variable& w, double g, const Numbers& o) {
  w.first = o.mean_square_decay * w.first + (1 - o.mean_square_decay) * g * g;
  w.third = o.mean_square_decay * w.third + (1 - o.mean_square_decay) * g;
  return o.centered ? w.first - w.third * w.third : w.first;
}

// TensorFlow's and Keras': epsilon under the root, the rate within the velocity.
void rmsprop(Variable& w, double g, const Numbers& o) {
  const double square = moved_square(w, g, o);
  w.second = o.momentum * w.second + kSixteenth * g / std::sqrt(square + o.epsilon);
  w.value -= w.second;
}

const std::map<std::string, Update>& updates_by_definition() {
  static const std::map<std::string, Update> updates{
      {"sgd", [](Variable& w, double g, double, const Numbers&) { w.value -= kSixteenth * g; }},
      {"tf_momentum",
       [](Variable& w, double g, double, const Numbers& o) {
         w.first = o.momentum * w.first + g;
         w.value -= kSixteenth * w.first;
       }},
      {"tf_nesterov",
       [](Variable& w, double g, double, const Numbers& o) {
         w.first = o.momentum * w.first + g;
         w.value -= kSixteenth * g + kSixteenth * o.momentum * w.first;
       }},
      {"torch_momentum",
       [](Variable& w, double g, double, const Numbers& o) {
         if (o.momentum == 0) {
           w.value -= kSixteenth * g;
           return;
         }
         w.first = w.updates == 1 ? g : o.momentum * w.first + (1 - o.dampening) * g;
         w.value -= kSixteenth * (o.nesterov ? g + o.momentum * w.first : w.first);
       }},
      {"keras_momentum",
       [](Variable& w, double g, double, const Numbers& o) {
         w.first = o.momentum * w.first - kSixteenth * g;
         w.value += o.nesterov ? o.momentum * w.first - kSixteenth * g : w.first;
       }},
      {"tf_rmsprop",
       [](Variable& w, double g, double, const Numbers& o) {
         if (w.updates == 1) w.first = 1;
         rmsprop(w, g, o);
       }},
      {"keras_rmsprop", [](Variable& w, double g, double, const Numbers& o) { rmsprop(w, g, o); }},
      {"torch_rmsprop",
       [](Variable& w, double g, double, const Numbers& o) {
         const double square = moved_square(w, g, o);
         w.second = o.momentum * w.second + g / (std::sqrt(square) + o.epsilon);
         w.value -= kSixteenth * w.second;
       }},
      {"tf_adam", [](Variable& w, double g, double, const Numbers& o) { adam(w, g, o, true); }},
      {"torch_adam", [](Variable& w, double g, double, const Numbers& o) { adam(w, g, o, false); }},
      {"torch_adamw",
       [](Variable& w, double g, double decay, const Numbers& o) {
         w.value -= kSixteenth * decay * w.value;
         adam(w, g, o, false);
       }},
      {"keras_adamw",
       [](Variable& w, double g, double decay, const Numbers& o) {
         w.value -= kSixteenth * decay * w.value;
         adam(w, g, o, true);
       }},
      {"torch_nadam", [](Variable& w, double g, double, const Numbers& o) { nadam(w, g, o, 0.004); }},
      {"keras_nadam", [](Variable& w, double g, double, const Numbers& o) { nadam(w, g, o, 1); }},
      {"lars",
       [](Variable& w, double g, double decay, const Numbers& o) {
         const double weight = std::abs(w.value);
         const double ratio = o.trust_coefficient * weight / (std::abs(g) + decay * weight);
         w.first = o.momentum * w.first + kSixteenth * ratio * (g + decay * w.value);
         w.value -= w.first;
       }},
      {"lamb", [](Variable& w, double g, double decay, const Numbers& o) {
         move_means(w, g, o);
         const double mean = o.bias_correction ? corrected(w.first, o.beta1, w.updates) : w.first;
         const double square = o.bias_correction ? corrected(w.second, o.beta2, w.updates) : w.second;
         const double direction = mean / (std::sqrt(square) + o.epsilon) + decay * w.value;
         w.value -= kSixteenth * std::abs(w.value) / std::abs(direction) * direction;
       }}};
  return updates;
}

// Whose loss does not hold the weight decay.
bool decoupled(const OracleOptimizer& optimizer) {
  return optimizer.options.decoupled_decay || optimizer.name == "torch_adamw" || optimizer.name == "keras_adamw" ||
         optimizer.name == "lamb";
}

// The two variables of one model.
struct Model {
  Variable a{.value = 1}, b{.value = 2};

  // Takes the derivatives of the base loss, summed or averaged, and how many times the loss holds the weight decay.
  void update(const OracleOptimizer& optimizer, double of_a, double of_b, double decays) {
    const auto update = updates_by_definition().find(optimizer.name);
    if (update == updates_by_definition().end()) {
      throw core::Error(core::ErrorCode::kInternal, "the oracle does not know the optimizer " + optimizer.name);
    }
    for (const auto& [variable, gradient] : {std::pair{&a, of_a}, std::pair{&b, of_b}}) {
      ++variable->updates;
      const bool own = decoupled(optimizer), in_update = optimizer.name == "lars";
      const double decay = optimizer.options.weight_decay * (own ? 1 : decays);
      if (optimizer.options.decoupled_decay) variable->value -= kSixteenth * decay * variable->value;
      const double in_loss = own || in_update ? 0 : decay * variable->value;
      update->second(*variable, gradient + in_loss, decay, optimizer.options);
    }
  }
  double l2(const OracleOptimizer& optimizer) const {
    if (decoupled(optimizer)) return 0;
    return optimizer.options.weight_decay * (a.value * a.value + b.value * b.value) / 2;
  }
};

class ShareRecorder : public Callback {
 public:
  OracleShare share;
  std::string name() const override { return "share_recorder"; }
  void after_step(Trainer& trainer, const StepView& view) override {
    const auto& tower_trainer = dynamic_cast<TowerTrainer&>(trainer);
    double sum = 0;
    for (const ReplicaView& replica : view.replicas) sum += replica.loss().item<double>();
    const auto replicas = static_cast<double>(view.replicas.size());
    EXPECT_NEAR(sum / replicas, tower_trainer.last_base_loss(), 1e-6 * std::max(1.0, std::abs(sum)));
    share.base.push_back(tower_trainer.last_base_loss() * replicas);
    share.beside.push_back(tower_trainer.last_total_loss() - tower_trainer.last_base_loss());
  }
};

}  // namespace

int OracleLayout::all() const {
  return std::accumulate(replicas.begin(), replicas.end(), 0);
}

int OracleLayout::first(int process) const {
  return std::accumulate(replicas.begin(), replicas.begin() + process, 0);
}

bool OracleLayout::sums() const {
  if (reduction) return *reduction == parallel::GradientReduction::kSum;
  return mode == "replicated" || mode == "collective_all_reduce" || mode == "distributed_all_reduce";
}

optim::OptimizerOptions OracleOptimizer::library_options() const {
  const OracleNumbers& o = options;
  return {.numbers = optim::numbers_of(name, {{"momentum", o.momentum},
                                              {"dampening", o.dampening},
                                              {"nesterov", o.nesterov},
                                              {"mean_square_decay", o.mean_square_decay},
                                              {"centered", o.centered},
                                              {"beta1", o.beta1},
                                              {"beta2", o.beta2},
                                              {"epsilon", o.epsilon},
                                              {"trust_coefficient", o.trust_coefficient},
                                              {"bias_correction", o.bias_correction}}),
          .weight_decay = o.weight_decay,
          .decoupled_decay = o.decoupled_decay,
          .delayed = o.delayed};
}

OracleOptimizer oracle_optimizer(const std::string& name) {
  return {.name = name, .options = {.weight_decay = kSixteenth}, .text = name};
}

std::vector<OracleOptimizer> oracle_optimizers() {
  std::vector<OracleOptimizer> all;
  for (const auto& [name, update] : updates_by_definition()) all.push_back(oracle_optimizer(name));
  const auto add = [&](const std::string& name, const std::string& form, auto change) {
    all.push_back(oracle_optimizer(name));
    all.back().text += " " + form;
    change(all.back().options);
  };
  add("torch_momentum", "nesterov", [](Numbers& o) { o.nesterov = true; });
  add("torch_momentum", "dampened", [](Numbers& o) { o.dampening = 0.5; });
  add("torch_momentum", "dampened without momentum", [](Numbers& o) {
    o.momentum = 0;
    o.dampening = 0.5;
  });
  add("keras_momentum", "nesterov", [](Numbers& o) { o.nesterov = true; });
  for (const char* name : {"tf_rmsprop", "keras_rmsprop", "torch_rmsprop"}) {
    add(name, "centered", [](Numbers& o) { o.centered = true; });
  }
  add("lamb", "without bias correction", [](Numbers& o) { o.bias_correction = false; });
  add("tf_momentum", "with decoupled decay", [](Numbers& o) { o.decoupled_decay = true; });
  return all;
}

OracleLosses oracle_losses(const OracleLayout& layout, const OracleOptimizer& optimizer, int steps) {
  const int replicas = layout.all();
  // Replicas that exchange gradients have one model.
  std::vector<Model> models(layout.exchanges() ? 1 : static_cast<size_t>(replicas));
  OracleLosses losses;
  for (int step = 0; step < steps; ++step) {
    std::vector<double> of_a(models.size()), of_b(models.size());
    double base = 0;
    for (int replica = 0; replica < replicas; ++replica) {
      const size_t place = layout.exchanges() ? 0 : static_cast<size_t>(replica);
      for (int micro_step = 0; micro_step < layout.micro_steps; ++micro_step) {
        const double mean = (first_input(layout, step, micro_step, replica) + 0.5) / layout.micro_steps;
        base += mean * models[place].a.value * models[place].b.value / replicas;
        of_a[place] += mean * models[place].b.value;
        of_b[place] += mean * models[place].a.value;
      }
    }
    losses.base.push_back(base);
    losses.total.push_back(base + models[0].l2(optimizer));
    const double shared_by = layout.exchanges() && !layout.sums() ? replicas : 1;
    const double decays = layout.exchanges() && layout.sums() ? replicas : 1;
    for (size_t m = 0; m < models.size(); ++m) {
      models[m].update(optimizer, of_a[m] / shared_by, of_b[m] / shared_by, decays);
    }
  }
  return losses;
}

OracleShare train_oracle_share(const OracleLayout& layout, int process, const OracleOptimizer& optimizer, int steps,
                               std::function<std::vector<std::unique_ptr<core::Communicator>>()> make_communicators,
                               std::shared_ptr<parallel::ServerGroup> servers) {
  const int own = layout.replicas.at(static_cast<size_t>(process));
  std::vector<float> inputs;
  for (int step = 0; step < steps; ++step) {
    for (int micro_step = 0; micro_step < layout.micro_steps; ++micro_step) {
      for (int replica = 0; replica < own; ++replica) {
        const double first = first_input(layout, step, micro_step, layout.first(process) + replica);
        inputs.push_back(static_cast<float>(first));
        inputs.push_back(static_cast<float>(first + 1));
      }
    }
  }
  const auto samples = static_cast<int64_t>(inputs.size());
  TowerTrainerOptions options;  // member by member: GCC 12 takes parts of a braced one for uninitialized
  options.graph = two_scalars();
  options.loss = loss_of([](const at::Tensor& output, const at::Tensor&) { return output.mean(); });
  options.devices.replicas = own;
  options.devices.dtype = layout.dtype;
  if (layout.dtype == at::kHalf) options.devices.loss_scale = optim::LossScalerOptions{.scale = 128};
  options.micro_steps = layout.micro_steps;
  options.threads.intra_op_threads = own;
  options.exchange.variable_update = layout.mode;
  options.devices.make_communicators = std::move(make_communicators);
  options.devices.servers = std::move(servers);
  options.exchange.reduction = layout.reduction;
  options.exchange.packing = layout.packing;
  options.make_optimizer = [&optimizer](nn::ParameterSet& set) {
    return optim::optimizers().get(optimizer.name)(set, optimizer.library_options());
  };
  options.learning_rate = optim::constant(kSixteenth);
  TowerTrainer trainer(std::move(options), std::make_shared<MemorySource>(at::tensor(inputs).view({samples, 1, 1, 1}),
                                                                          at::zeros({samples}, at::kLong), 2, own));
  const auto recorder = std::make_shared<ShareRecorder>();
  trainer.add(recorder);
  trainer.train({.steps_per_epoch = steps});
  return recorder->share;
}

OracleLosses joined(const OracleLayout& layout, const std::vector<OracleShare>& shares) {
  OracleLosses losses;
  for (size_t step = 0; step < shares.at(0).base.size(); ++step) {
    const double beside = shares[0].beside[step];
    double base = 0;
    for (const OracleShare& share : shares) {
      base += share.base.at(step);
      // All have the same parameters, and so the same L2 loss.
      if (layout.exchanges()) {
        EXPECT_NEAR(share.beside.at(step), beside, 1e-5 * std::max(1.0, std::abs(beside))) << "step " << step;
      }
    }
    losses.base.push_back(base / layout.all());
    losses.total.push_back(losses.base.back() + beside);
  }
  return losses;
}

void expect_oracle_losses(const OracleLosses& actual, const OracleLosses& wanted, double tolerance) {
  ASSERT_EQ(actual.base.size(), wanted.base.size());
  for (size_t step = 0; step < wanted.base.size(); ++step) {
    EXPECT_NEAR(actual.base[step], wanted.base[step], tolerance * std::abs(wanted.base[step])) << "base, step " << step;
    EXPECT_NEAR(actual.total[step], wanted.total[step], tolerance * std::abs(wanted.total[step]))
        << "total, step " << step;
  }
}

}  // namespace trainyard::train
