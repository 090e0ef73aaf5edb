// Takes batches from a generator: a simulator, a reader of a file format, anything that returns one batch after the
// other. It runs on a thread of its own, ahead of the training.
//
//   GeneratorSource source([](int64_t epoch, const core::StopToken&) -> Generator {
//     return [reader = std::make_shared<Reader>("train.bin", epoch)]() -> std::optional<core::NamedTensors> {
//       if (reader->at_end()) return std::nullopt;
//       return core::NamedTensors{{"x", reader->read()}};
//     };
//   }, {.batch_size = 16});
//
// A run resumes with a new generator, which makes all earlier batches of the epoch once more, to be discarded: it must
// make the same ones. When that is too slow, use FunctionSource or TensorSource, which can seek.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/named_tensors.h"
#include "trainyard/core/base/wrong_type.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/sources/source_decorator.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

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

 private:
  class Worker;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
