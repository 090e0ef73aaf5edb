// The numbers of a training that have names and may change while it runs: "learning_rate", "momentum", "weight_decay",
// and any that a program adds. A schedule gives a value at each step; whoever sets one by hand (a callback, a person, a
// file) takes it from its schedule, and can give it back.
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
  // Which values one may have; ends included.
  struct Range {
    double least{}, most{};
  };
  static const Range kAnyFinite;

  // Adds one whose value the schedule, a function of the step from 0, gives. Throws kInvalidArgument for a second one
  // of the same name, and for a name that is empty or has a line break or ':'.
  void add(const std::string& name, LearningRate schedule, Range range = kAnyFinite);
  // Adds one that keeps its value until it is set.
  void add(const std::string& name, double value, Range range = kAnyFinite);

  std::vector<std::string> names() const;
  bool has(std::string_view name) const { return entries_.find(name) != entries_.end(); }

  // The next four throw kNotFound for a name that is not there, with the nearest.
  //
  // Returns the value that the step that runs has, or the next step where none runs.
  double get(std::string_view name) const;
  // Sets the value from the next step on. Throws kInvalidArgument for one that is not finite or out of its range.
  void set(std::string_view name, double value);
  // Gives it back to its schedule, or to the value with which it was added, from the next step on.
  void release(std::string_view name);
  bool set_by_hand(std::string_view name) const;

  // Reads the schedules for a step. Throws kInvalidArgument when one gives a value that cannot be.
  void begin_step(int64_t step);

  // Saves what was set by hand, as "<name>". Loading puts back just that: all others follow their schedules. Names that
  // are not there are left out with a warning.
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
  int64_t next_step_ = 0;  // whose values those are that get() returns
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
