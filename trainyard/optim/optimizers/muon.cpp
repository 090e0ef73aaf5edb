// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): the momentum of each matrix is
// made nearly orthogonal before it is applied. A parameter of two and more dimensions is the matrix [first dimension,
// all others]. Vectors, and the matrices that OptimizerOptions::muon_exclude names, go through another formula of the
// same optimizer: PyTorch's SGD with Nesterov's momentum, or its AdamW.
//
// torch.optim.Muon's velocity is (1 - m) times the one here, and so is its direction (1 - m) g + m v; only the scale
// differs, which the orthogonalization removes.
#include "trainyard/optim/formulas/muon.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty_like.h>

#include "trainyard/core/base/pattern.h"
#include "trainyard/optim/formulas/adam.h"
#include "trainyard/optim/formulas/momentum.h"
#include "trainyard/optim/optimizers/flat_update.h"
#include "trainyard/optim/optimizers/formula_optimizer.h"
#include "trainyard/optim/optimizers/host_update.h"
#include "trainyard/optim/optimizers/orthogonalize.h"

namespace trainyard::optim {
namespace {

enum MuonRate { kNone, kOriginal, kMatchRmsAdamw, kSpectralUnclamped };
const std::vector<std::string> kRates = {"none", "original", "match_rms_adamw", "spectral_unclamped"};

// What torch.optim.Muon's adjust_lr_fn multiplies the learning rate by.
double rate_of_shape(int rate, double rows, double columns) {
  switch (rate) {
    case kOriginal:
      return std::sqrt(std::max(1.0, rows / columns));
    case kMatchRmsAdamw:
      return 0.2 * std::sqrt(std::max(rows, columns));
    case kSpectralUnclamped:
      return std::sqrt(rows / columns);
    default:
      return 1;
  }
}

// The step of a matrix: weights = keep * weights - length * direction.
struct Move {
  bool moves = false;
  double keep = 1, length = 0;
};

// `moves`: by segment.
template <typename T>
void apply_moves(const Optimizer& optimizer, const at::Tensor& directions, const std::vector<Move>& moves) {
  T* const weights = optimizer.parameters().values().mutable_data_ptr<T>();
  const T* const direction = directions.const_data_ptr<T>();
  for_each_part(optimizer, [&](const SegmentPart& part, size_t) {
    const Move& move = moves[optimizer.own()[static_cast<size_t>(part.segment)]];
    if (!move.moves) return;
    const T keep = static_cast<T>(move.keep), length = static_cast<T>(move.length);
    for (int64_t i = part.begin; i < part.begin + part.count; ++i) {
      weights[i] = keep * weights[i] - length * direction[i];
    }
  });
}

std::string layer_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

class Muon : public DeclaredOptimizer {
 public:
  Muon(nn::ParameterSet& parameters, const OptimizerOptions& options, const FormulaOptimizer& declared)
      : DeclaredOptimizer(parameters, options, declared) {
    require_host_memory("muon's matrices");
    find_matrices();
    decouple(matrices_);
    const AnyFormula formula = declared.make(this->options().numbers);
    for (size_t s = 0; s < slots_of(formula); ++s) add_slot(declared.slots[s].name, declared.slots[s].initial);
    if (counts_updates(formula)) count_updates({0, 1}, declared.counts_by_parameter);
  }

  std::string part_obstacle() const override { return "it makes the updates of whole matrices orthogonal"; }

 private:
  void find_matrices() {
    const std::vector<nn::Segment>& segments = parameters().segments();
    matrices_.assign(segments.size(), false);
    others_.assign(segments.size(), false);
    std::vector<bool> excluded(segments.size(), false);
    for (const std::string& pattern : options().muon_exclude) {
      bool found = false;
      for (size_t i = 0; i < segments.size(); ++i) {
        const std::string& name = segments[i].spec.name;
        if (!core::matches_pattern(name, pattern) && !core::matches_pattern(layer_of(name), pattern)) continue;
        found = excluded[i] = true;
      }
      if (!found) (void)parameters().matching(pattern);  // which says so
    }
    for (const size_t i : own()) {
      (segments[i].spec.shape.size() >= 2 && segments[i].count > 0 && !excluded[i] ? matrices_ : others_)[i] = true;
    }
  }

  void update(const StepState& state, const at::Tensor& gradients) override {
    const StepValues values = state.read();
    if (values.found_inf) return;
    update_on_host(*this, state, gradients, declared().make(options().numbers), {.segments = &others_});
    const at::Tensor weights = parameters().values();
    if (!directions_.defined()) directions_ = at::empty_like(weights);
    directions_.copy_(weights);  // which regularization reads
    update_on_host(*this, state, gradients, MuonDirectionFormula{.momentum = number("muon_momentum")},
                   {.segments = &matrices_, .values = directions_});
    std::vector<Move> moves(parameters().segments().size());
    for (const size_t i : own()) {
      if (matrices_[i] && trainable(i) && rate_factor(i) != 0) moves[i] = move_of(i, values.learning_rate);
    }
    weights.scalar_type() == at::kDouble ? apply_moves<double>(*this, directions_, moves)
                                         : apply_moves<float>(*this, directions_, moves);
  }

  // Makes the direction of a segment orthogonal.
  Move move_of(size_t segment, double learning_rate) {
    const nn::Segment& of = parameters().segments()[segment];
    const int64_t rows = of.spec.shape[0], columns = of.count / rows;
    const double rate = learning_rate * rate_factor(segment);
    double keep = 1 - rate * update_decay(segment);
    if (number("normalize_weights") != 0) {
      const double norm = std::sqrt(sum_of_squares(parameters().values().narrow(0, of.offset, of.count)));
      if (norm > 0) keep *= std::sqrt(static_cast<double>(rows)) / norm;
    }
    orthogonalize_(directions_.narrow(0, of.offset, of.count).view({rows, columns}),
                   static_cast<int64_t>(number("muon_steps")));
    const double length = rate * rate_of_shape(static_cast<int>(number("muon_rate")), static_cast<double>(rows),
                                               static_cast<double>(columns));
    return {.moves = true, .keep = keep, .length = length};
  }

  std::vector<bool> matrices_, others_;  // by segment
  at::Tensor directions_;                // [total]; a scratch
  Orthogonalizer orthogonalize_;
};

std::vector<OptimizerNumber> with_muon_numbers(std::vector<OptimizerNumber> numbers) {
  numbers.push_back({.name = "muon_momentum",
                     .default_value = 0.95,
                     .range = NumberRange::kBelowOne,
                     .flag = "muon_momentum",
                     .flag_help = "momentum of muon's matrices, in Nesterov's form"});
  numbers.push_back({.name = "muon_steps",
                     .default_value = 5,
                     .range = NumberRange::kCount,
                     .changes = false,
                     .flag = "muon_steps",
                     .flag_help = "Newton-Schulz iterations that make muon's momentum orthogonal"});
  numbers.push_back({.name = "normalize_weights",
                     .range = NumberRange::kSwitch,
                     .changes = false,
                     .flag = "muon_normalize_weights",
                     .flag_help = "make the norm of each of muon's matrices the root of its number of rows before each "
                                  "update, as airbench does"});
  numbers.push_back({.name = "muon_rate",
                     .default_value = kOriginal,
                     .range = NumberRange::kChoice,
                     .changes = false,
                     .flag = "muon_rate",
                     .flag_help = "what the rate of muon's matrices is multiplied by, as torch.optim.Muon's "
                                  "adjust_lr_fn: original: sqrt(max(1, rows / columns)); match_rms_adamw: 0.2 "
                                  "sqrt(max(rows, columns)); spectral_unclamped: sqrt(rows / columns)",
                     .choices = kRates});
  return numbers;
}

// Declares `declared.make` as the formula of the parameters that are no matrices.
FormulaOptimizer with_muon(FormulaOptimizer declared) {
  declared.formula =
      "matrices: v = m * v + g;  o = orthogonal(g + m * v);  w = (1 - lr * weight_decay) * w - lr * rate(w) * o\n"
      "  with m of --muon_momentum; orthogonal(d): x = d / |d|, then --muon_steps times\n"
      "  x = 3.4445 * x + (-4.7750 * x x^T + 2.0315 * (x x^T)^2) x\n" +
      declared.formula;
  declared.source =
      "Jordan et al., \"Muon: An optimizer for hidden layers in neural networks\", 2024, and torch.optim.Muon; " +
      declared.source;
  declared.numbers = with_muon_numbers(std::move(declared.numbers));
  declared.construct = [](nn::ParameterSet& parameters, const OptimizerOptions& options,
                          const FormulaOptimizer& kept) -> std::unique_ptr<Optimizer> {
    return std::make_unique<Muon>(parameters, options, kept);
  };
  return declared;
}

const FormulaRegistration kMuonSgd(with_muon({
    .name = "muon_sgd",
    .formula = "others: v = m * v + g;  w -= lr * (g + m * v)",
    .source = "others by PyTorch's SGD with nesterov, as in Jordan's airbench94_muon",
    .slots = {{.name = "momentum"}},
    .numbers = {momentum_number()},
    .make = [](const OptimizerNumbers& n) { return MomentumFormula<true>{.momentum = n.at("momentum")}; },
}));

const FormulaRegistration kMuonAdamw(with_muon({
    .name = "muon_adamw",
    .formula = "others: torch_adamw",
    .source = "others by PyTorch's AdamW, as in Jordan's package muon",
    .slots = {{.name = "mean"}, {.name = "mean_square"}},
    .numbers = mean_numbers(1e-8),
    .make =
        [](const OptimizerNumbers& n) {
          return AdamFormula{
              .beta1 = n.at("beta1"), .beta2 = n.at("beta2"), .epsilon = n.at("epsilon"), .corrected_root = true};
        },
    .decay = FormulaOptimizer::Decay::kDecoupled,
    .counts_by_parameter = true,
}));

}  // namespace
}  // namespace trainyard::optim
