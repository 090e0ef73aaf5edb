// Makes batches with a function of the caller. FunctionSource calls it with the place of a batch: random numbers, a
// simulation, tensors in memory.
//
//   FunctionSource source([](const BatchPlace& place) -> core::NamedTensors {
//     return {{"x", inputs_of(place.batch)}, {"y", targets_of(place.batch)}};
//   }, {.replicas = 2, .batch_size = 16});
//
// GeneratorSource calls it for the next batch, until there is none:
//
//   GeneratorSource source([](int64_t epoch, const core::StopToken&) -> Generator {
//     return [reader = std::make_shared<Reader>("train.bin", epoch)]() -> std::optional<core::NamedTensors> {
//       if (reader->at_end()) return std::nullopt;
//       return core::NamedTensors{{"x", reader->read()}};
//     };
//   }, {.batch_size = 16});
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct BatchPlace {
  int64_t epoch = 0;  // from 0
  int64_t batch = 0;  // of this epoch, from 0
  int replica = 0;
};
// Any tensors; there may be none.
using MakeBatch = std::function<core::NamedTensors(const BatchPlace& place)>;

struct FunctionSourceOptions {
  int replicas = 1;
  int total_replicas = 0;  // replicas of all processes that train together, for positions; 0: only the local ones
  int64_t batch_size = 1;  // number of samples in a batch: positions and rates count these
  int64_t batches_per_epoch = 0;  // 0: the first epoch has no end
  void validate() const;          // throws kInvalidArgument
};

// Makes each batch as a function of its place alone, so a run resumes from any position with the batches that it would
// have had.
class FunctionSource : public BatchSource, public SizedSource {
 public:
  // `make` is called on the thread that calls next(), for one replica after the other.
  FunctionSource(MakeBatch make, const FunctionSourceOptions& options);
  template <typename Wrong>
  requires(!std::convertible_to<Wrong, MakeBatch>) FunctionSource(Wrong&&, const FunctionSourceOptions&) {
    static_assert(core::kRightType<Wrong>,
                  "FunctionSource takes a function of const data::BatchPlace& that returns core::NamedTensors, such as "
                  "{{\"images\", images}, {\"labels\", labels}}");
  }

  int64_t batch_size() const override { return options_.batch_size; }
  int replicas() const override { return options_.replicas; }
  int64_t batches_per_epoch() const override { return options_.batches_per_epoch; }
  std::vector<Batch> next() override;
  double waited_seconds() const override { return waited_seconds_; }
  void stop() override {}
  Position position() const override { return position_; }
  // Continues with the batch that contains the position's sample.
  void seek(Position position) override;

 private:
  int64_t samples_a_batch() const {
    return options_.batch_size * (options_.total_replicas > 0 ? options_.total_replicas : options_.replicas);
  }

  MakeBatch make_;
  FunctionSourceOptions options_;
  Position position_;
  double waited_seconds_ = 0;
};

// Returns one replica's next batch, or nothing at the end.
using Generator = std::function<std::optional<core::NamedTensors>()>;
// Makes the generator of an epoch (from 0). `stop` is set once its batches are not needed any more: a generator that
// waits for something must check it, because the source's stop() waits for the generator to return.
using MakeGenerator = std::function<Generator(int64_t epoch, const core::StopToken& stop)>;

struct GeneratorSourceOptions {
  int64_t batch_size = 1;    // number of samples in a batch: positions and rates count these
  int replicas = 1;          // replicas, which take the generator's batches in turn
  int prefetch_batches = 2;  // global batches made ahead, at least 1
  // true: when a generator ends, the next epoch's generator continues, also within a global batch. false: one epoch; a
  // replica without a batch gets an empty one, without tensors.
  bool repeat = true;
  void validate() const;  // throws kInvalidArgument
};

// Takes batches from a generator: a simulator, a reader of a file format, anything that returns one batch after the
// other. It runs on a thread of its own, ahead of the training.
//
// A run resumes with a new generator, which makes all earlier batches of the epoch once more, to be discarded: it must
// make the same ones. When that is too slow, use FunctionSource or TensorSource, which can seek.
//
// The thread starts with the first next(), so a seek() before it costs nothing. It has one intra-op thread, and makes,
// calls and destroys the generators, one at a time. When a generator throws, next() returns the batches before the
// error, then throws it at each call until seek(). In the same way it throws kInvalidArgument when the data end before
// the position of a seek and, with `repeat`, when an epoch has no batch.
class GeneratorSource : public SourceDecorator {
 public:
  GeneratorSource(MakeGenerator make, const GeneratorSourceOptions& options);
  template <typename Wrong>
  requires(!std::convertible_to<Wrong, MakeGenerator>) GeneratorSource(Wrong&&, const GeneratorSourceOptions& options)
      : GeneratorSource(MakeGenerator(), options) {
    static_assert(core::kRightType<Wrong>,
                  "GeneratorSource takes a function of (int64_t epoch, const core::StopToken&) that returns a "
                  "data::Generator, which returns std::optional<core::NamedTensors>");
  }
  ~GeneratorSource() override;

  std::vector<Batch> next() override { return source()->next(); }
  // Returns whether the next epoch's generator continues where one ends.
  [[nodiscard]] bool repeats() const { return repeats_; }

 private:
  class Worker;
  bool repeats_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
