// The named numbers of a training that may change while it runs: "learning_rate", "momentum", "weight_decay", and any
// that a program adds. A schedule gives a value for each step. A number that a callback sets by hand ignores its
// schedule until it is released.
//
//   Hyperparameters numbers;
//   numbers.add("learning_rate", cosine(0.1, 1000));
//   numbers.begin_step(17);            // the trainer does, once a step
//   numbers.get("learning_rate");
//   numbers.set("learning_rate", 0.01);   // from the next step on
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/optim/schedules/learning_rate.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

// One thread at a time: the trainer's.
class Hyperparameters : public core::Stateful {
 public:
  // The valid values, ends included.
  struct Range {
    double least{}, most{};
  };
  static const Range kAnyFinite;

  // Adds a number with a schedule, a function of the step from 0. Throws kInvalidArgument for a second one of the same
  // name, and for a name that is empty or has a line break or ':'.
  void add(const std::string& name, LearningRate schedule, Range range = kAnyFinite);
  // Adds a number that keeps its value until it is set.
  void add(const std::string& name, double value, Range range = kAnyFinite);

  std::vector<std::string> names() const;
  bool has(std::string_view name) const { return entries_.find(name) != entries_.end(); }

  // The next three throw kNotFound for an unknown name, with the nearest.
  //
  // Returns the value in the current step, or in the next step between steps.
  double get(std::string_view name) const;
  // Sets the value from the next step on. Throws kInvalidArgument for a value that is not finite or out of range.
  void set(std::string_view name, double value);
  // Returns it to its schedule, or to its initial value, from the next step on.
  void release(std::string_view name);

  // Evaluates the schedules for a step. Throws kInvalidArgument when one returns an invalid value.
  void begin_step(int64_t step);

  // Saves the values that were set by hand, as "<name>". Loading restores only these: all others follow their
  // schedules. Unknown names are ignored with a warning.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  struct Entry {
    LearningRate schedule{};
    Range range{};
    double value = 0;
    bool by_hand = false;
  };
  const Entry& entry(std::string_view name) const;
  static void check(const std::string& name, const Range& range, double value);

  std::map<std::string, Entry, std::less<>> entries_;
  int64_t next_step_ = 0;  // step whose values get() returns
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
