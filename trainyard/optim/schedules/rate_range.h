// The learning-rate range test (Smith, "Cyclical learning rates for training neural networks", 2015, section 3.3): the
// rate rises exponentially from step to step, and the curve of the loss over the rate shows which rates a training
// bears. Smoothing, end and proposals are those of fastai's and PyTorch Lightning's lr_find.
//
//   RangeTest test({.lowest = 1e-6, .highest = 1, .steps = 100});
//   while (!test.done()) test.note(loss_after_a_step_with(test.rate()));
//   test.proposal()->steepest
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trainyard::optim {

struct RangeTestOptions {
  double lowest = 1e-6, highest = 10;  // rates of the first and of the last step, above 0
  int64_t steps = 100;                 // at least 10
  double smoothing = 0.98;             // the share of the earlier losses in the smoothed one, in [0, 1)
  double divergence = 4;               // the test ends when the smoothed loss passes its lowest value times this
  void validate() const;               // throws kInvalidArgument
};

struct RangeTestPoint {
  double rate = 0;
  double loss = 0;
  // Exponential mean of the losses so far, divided by 1 - smoothing^n, so that the first ones are not drawn to 0
  // (Kingma and Ba, "Adam", 2014, section 3).
  double smoothed = 0;
};

struct RateProposal {
  // The rate at which the loss falls fastest over the logarithm of the rate, by a line of least squares through the
  // losses of a fifth of the steps around it. Differences of the smoothed loss would be largest where it is the mean of
  // few losses: at the beginning, whatever the rate is.
  double steepest = 0;
  double tenth_of_minimum = 0;  // a tenth of the rate with the lowest smoothed loss
  double minimum = 0;           // that rate
  double fall = 0;              // the share by which the smoothed loss was lower there than at the beginning
};

class RangeTest {
 public:
  // Throws kInvalidArgument for options out of range.
  explicit RangeTest(const RangeTestOptions& options);

  const RangeTestOptions& options() const { return options_; }
  // Returns the rate of the next step.
  [[nodiscard]] double rate() const;
  // Counts a step that has run with rate(), whose mean loss was `loss`. A loss that is not finite ends the test.
  void note(double loss);
  // Returns true after the last step, and when the loss has diverged.
  [[nodiscard]] bool done() const;
  // Returns true when the smoothed loss has passed its lowest value times options().divergence, or a loss was not
  // finite.
  [[nodiscard]] bool diverged() const { return diverged_; }
  // Returns the steps with a finite loss.
  const std::vector<RangeTestPoint>& points() const { return points_; }
  // Returns nothing when the loss has not fallen.
  [[nodiscard]] std::optional<RateProposal> proposal() const;

 private:
  RangeTestOptions options_;
  std::vector<RangeTestPoint> points_;
  double sum_ = 0, lowest_smoothed_ = 0;
  bool diverged_ = false;
};

}  // namespace trainyard::optim
