// Keeps the time that goes into saving a small part of a training's: what is saved often is put off while saving costs
// more. A network whose epoch takes a second and whose checkpoint takes a third of one would else spend a quarter of
// the training on them.
//
//   SavingTime time;
//   if (time.allows()) time.measure([&] { store.save(...); });
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "trainyard/core/base/elapsed.h"

namespace trainyard::train {

class SavingTime {
 public:
  static constexpr double kPart = 0.05;    // of the time, at most, and
  static constexpr double kShort = 0.025;  // seconds that are saved at any time
  // What is written in the background may take more of the time: the training waits for a copy of the state alone.
  static constexpr double kBackgroundPart = 0.1;
  // A state that is written in the background at any time, in bytes: it takes hundredths of a second of a processor.
  static constexpr int64_t kSmallBytes = int64_t{32} << 20;

  // `clock` returns seconds; empty: a steady clock.
  explicit SavingTime(std::function<double()> clock = {}) : clock_(clock ? std::move(clock) : core::steady_seconds) {}

  // Returns false while the last saving is more than its part of the time since it began.
  [[nodiscard]] bool allows(double part = kPart) const {
    return seconds_ <= kShort || clock_() - begin_ >= seconds_ / part;
  }
  // Calls `save`, and remembers how long it took, also when it throws.
  template <typename Save>
  void measure(const Save& save) {
    begin_ = clock_();
    const struct Ended {
      SavingTime& time;
      ~Ended() { time.seconds_ = time.clock_() - time.begin_; }
    } ended{*this};
    save();
  }
  // Remembers a saving that has ended elsewhere: when it began, by the clock, and how long it took.
  void note(double begin, double seconds) {
    begin_ = begin;
    seconds_ = seconds;
  }
  double now() const { return clock_(); }

 private:
  std::function<double()> clock_;
  double begin_ = 0, seconds_ = 0;  // of the last saving
};

}  // namespace trainyard::train
