// Batches of a generator: a simulator, a reader of a file of its own, anything that gives one batch after the other. It
// runs on a thread of its own, ahead of the training.
//
//   GeneratorSource source([](int64_t epoch, const core::StopToken&) -> Generator {
//     return [reader = std::make_shared<Reader>("train.bin", epoch)]() -> std::optional<core::NamedTensors> {
//       if (reader->at_end()) return std::nullopt;
//       return core::NamedTensors{{"x", reader->read()}};
//     };
//   }, {.batch_size = 16});
//
// A run resumes with a new generator, which makes all batches of the epoch that were taken before once more, to be
// thrown away: it must make the same ones. Where that is too slow, let FunctionSource or TensorSource find the place.
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
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Returns one replica's next batch, or nothing at the end.
using Generator = std::function<std::optional<core::NamedTensors>()>;
// Makes the generator of an epoch (from 0). `stop` is asked for once its batches are not wanted any more: a generator
// that waits for something must watch it, because the source's stop() waits for the generator to return.
using MakeGenerator = std::function<Generator(int64_t epoch, const core::StopToken& stop)>;

struct GeneratorSourceOptions {
  int64_t batch_size = 1;    // samples that a batch stands for: positions and rates count these
  int replicas = 1;          // which take the generator's batches in turn
  int prefetch_batches = 2;  // global batches made ahead, at least 1
  // true: when a generator ends, the next epoch's goes on, in the middle of a global batch, too. false: one epoch; a
  // replica that is left without a batch gets one that holds no tensors.
  bool repeat = true;
  void validate() const;  // throws kInvalidArgument
};

// The thread starts with the first next(), so a seek() before it costs nothing. It has one intra-op thread, and makes,
// calls and destroys the generators, one at a time. Where a generator throws, next() gives out the batches before the
// error, then throws it at each call until seek(). In the same way it throws kInvalidArgument where the data end before
// the position that was sought and, with `repeat`, where an epoch has no batch at all.
class GeneratorSource : public BatchSource {
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

  int64_t batch_size() const override;
  int replicas() const override;
  std::vector<Batch> next() override;
  double waited_seconds() const override;
  void stop() override;
  Position position() const override;
  // Goes on with the batch in which the position's sample lies.
  void seek(Position position) override;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
