// Callbacks that set a hyperparameter of the trainer (trainer.hyperparameters()), with the names and the meaning that
// they have in Tensorpack. All but the step-based schedule act when an epoch has ended; the next step has the value.
//
//   trainer.add(std::make_shared<ScheduledHyperParamSetter>("learning_rate", {{30, 1e-2}, {60, 1e-3}}));
//
// The values are saved with the trainer's hyperparameters, so that a resumed training continues in the same way. When
// several processes train together, each has the callback, and all must set the same values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Base class of the setters. setup() throws kNotFound when the trainer has no hyperparameter of that name.
class HyperParamSetter : public Callback {
 public:
  std::string name() const override { return kind_ + "_" + parameter_; }
  void setup(Trainer& trainer) override;
  // Sets the value once before the first step of a training, but not in a resumed run.
  void before_train(Trainer& trainer) override;
  void trigger(Trainer& trainer) override;

 protected:
  HyperParamSetter(std::string kind, std::string parameter);

  // Returns the new value, or nothing to keep the current one. `epochs_done` is trainer.epoch() after an epoch, and
  // starting_epoch - 1 before the first.
  [[nodiscard]] virtual std::optional<double> value_to_set(Trainer& trainer, int64_t epochs_done) = 0;
  void set(Trainer& trainer, int64_t epochs_done);
  const std::string& parameter() const { return parameter_; }

 private:
  std::string kind_, parameter_;
};

enum class ScheduleUnit { kEpochs, kSteps };
enum class ScheduleInterpolation { kNone, kLinear };

// Sets values after certain epochs or steps are done; 0 is before the first. With kLinear it also interpolates between
// two entries. A training that begins where a value is due sets it, a resumed one, too. One that begins after an
// entry, or in the middle of an epoch, keeps its value, and warns when that is not the entry's.
class ScheduledHyperParamSetter : public HyperParamSetter {
 public:
  struct Entry {
    int64_t point{};  // epochs or global steps that are done
    double value{};
  };
  // Throws kInvalidArgument for no entries, negative points, and points that do not ascend.
  ScheduledHyperParamSetter(const std::string& parameter, std::vector<Entry> schedule,
                            ScheduleUnit unit = ScheduleUnit::kEpochs,
                            ScheduleInterpolation interpolation = ScheduleInterpolation::kNone);

  void before_train(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void trigger(Trainer& trainer) override;

 protected:
  std::optional<double> value_to_set(Trainer& trainer, int64_t epochs_done) override;

 private:
  // Returns the value for `point`, if it changes there.
  [[nodiscard]] std::optional<double> due_at(int64_t point) const;

  std::vector<Entry> schedule_;
  ScheduleUnit unit_;
  ScheduleInterpolation interpolation_;
};

// Sets function(epochs done, current value).
class HyperParamSetterWithFunc : public HyperParamSetter {
 public:
  using Function = std::function<double(int64_t epochs_done, double value)>;
  HyperParamSetterWithFunc(const std::string& parameter, Function function);

 protected:
  std::optional<double> value_to_set(Trainer& trainer, int64_t epochs_done) override;

 private:
  Function function_;
};

// Reads the value from a file that a person edits while the training runs: lines "name: value". A missing file changes
// nothing. When the file, or the line of this name, cannot be read, or has disappeared, the last good value is kept,
// with one warning until it can be read again.
class HumanHyperParamSetter : public HyperParamSetter {
 public:
  explicit HumanHyperParamSetter(const std::string& parameter, std::string path = "hyper.txt",
                                 core::FileSystem& files = core::local_file_system());

 protected:
  std::optional<double> value_to_set(Trainer& trainer, int64_t epochs_done) override;

 private:
  std::string path_;
  core::FileSystem* files_;
  bool seen_ = false;      // the file has existed
  std::string warned_of_;  // the last problem that was warned about; empty: none
};

// Changes the value when a statistic of the monitors has not improved for some epochs: by function(value), if none of
// the last `last_k` values is below the one before them by more than `threshold` (with kHigher: above). Then it waits
// `last_k` epochs.
class StatMonitorParamSetter : public HyperParamSetter {
 public:
  enum class Better { kLower, kHigher };
  struct Options {
    std::string statistic{};  // a name of MonitorSet::history(): "eval/loss"
    std::function<double(double value)> function{};
    double threshold = 0;
    int64_t last_k = 1;
    Better better = Better::kLower;
  };
  // Throws kInvalidArgument for invalid options.
  StatMonitorParamSetter(const std::string& parameter, Options options);

  void setup(Trainer& trainer) override;
  void before_train(Trainer&) override {}  // there is no statistic yet
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  std::optional<double> value_to_set(Trainer& trainer, int64_t epochs_done) override;

 private:
  Options options_;
  std::vector<int64_t> seen_;  // global steps of values in the monitors' history, one an epoch
  int64_t last_change_ = 0;    // epochs that were done at the last change
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
