#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/data/sources/source_options.h"

namespace trainyard::data {

using core::Error, core::ErrorCode;

void GeneratorSourceOptions::validate() const {
  require_at_least("the batch size", 1, batch_size);
  require_at_least("the number of replicas", 1, replicas);
  require_at_least("the number of batches made ahead", 1, prefetch_batches);
}

class GeneratorSource::Worker final : public BatchSource {
 public:
  Worker(MakeGenerator make, const GeneratorSourceOptions& options) : make_(std::move(make)), options_(options) {
    options_.validate();
    if (!make_) throw Error(ErrorCode::kInvalidArgument, "a source of generated batches needs a generator");
  }
  ~Worker() override { Worker::stop(); }

  int64_t batch_size() const override { return options_.batch_size; }
  int replicas() const override { return options_.replicas; }

  std::vector<Batch> next() override {
    const auto begin = std::chrono::steady_clock::now();
    const auto wanted = static_cast<size_t>(options_.replicas);
    std::unique_lock lock(mutex_);
    start_thread();
    made_.wait(lock, [&] { return stopped_ || ended_ || queue_.size() >= wanted; });
    waited_ += core::seconds_since(begin);
    if (stopped_) throw Error(ErrorCode::kCancelled, "a source of generated batches was stopped");
    if (error_ && queue_.size() < wanted) std::rethrow_exception(error_);
    if (queue_.empty()) return {};
    std::vector<Batch> batches(wanted);
    for (size_t r = 0; r < wanted; ++r) {
      batches[r].first_sample = static_cast<int64_t>(r) * options_.batch_size;
      if (queue_.empty()) continue;
      batches[r].tensors = std::move(queue_.front().tensors);
      position_ = queue_.front().after;
      queue_.pop_front();
    }
    for (Batch& batch : batches) batch.after = position_;
    taken_.notify_all();
    return batches;
  }

  double waited_seconds() const override {
    std::lock_guard lock(mutex_);
    return waited_;
  }

  void stop() override {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    end_thread();
  }

  Position position() const override {
    std::lock_guard lock(mutex_);
    return position_;
  }

  // Continues with the batch that contains the position's sample.
  void seek(Position position) override {
    if (position.epoch < 0 || position.offset < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "no source has such a position",
                   .actual = fmt::format("epoch {}, offset {}", position.epoch, position.offset)});
    }
    end_thread();
    std::lock_guard lock(mutex_);
    queue_.clear();
    ended_ = started_ = false;
    wanted_ = core::StopSource();
    position_ = {position.epoch, position.offset - position.offset % options_.batch_size};
  }

 private:
  struct Made {
    core::NamedTensors tensors;
    Position after;
  };

  // Called with mutex_ held. Who ends the thread holds join_mutex_ meanwhile, and the thread needs mutex_ to end. So
  // join_mutex_ is taken only before any stop(); seek() and next() are never called at the same time.
  void start_thread() {
    if (stopped_ || started_) return;
    std::lock_guard joining(join_mutex_);
    thread_ =
        std::make_unique<core::Thread>(core::ThreadOptions{.name = "generator"},
                                       [this, begin = position_, wanted = wanted_.token()] { run(begin, wanted); });
    started_ = true;
  }

  void end_thread() {
    {
      std::lock_guard lock(mutex_);
      wanted_.request_stop(core::StopReason::kRequested, "the batches of a generator are not wanted any more");
    }
    made_.notify_all();
    taken_.notify_all();
    std::lock_guard joining(join_mutex_);
    thread_.reset();  // joins
  }

  void run(Position begin, const core::StopToken& stop) {
    std::exception_ptr error;
    try {
      generate(begin, stop);
    } catch (...) {
      error = std::current_exception();
    }
    {
      std::lock_guard lock(mutex_);
      error_ = error;
      ended_ = true;
    }
    made_.notify_all();
  }

  void generate(Position begin, const core::StopToken& stop) {
    for (Position place = begin;; place = {place.epoch + 1, 0}) {
      const Generator generator = make_(place.epoch, stop);
      if (!generator) throw Error(ErrorCode::kInvalidArgument, "no generator was made for an epoch");
      int64_t offset = 0;
      while (!stop.stop_requested()) {
        std::optional<core::NamedTensors> tensors = generator();
        if (!tensors) break;
        offset += options_.batch_size;
        if (offset > place.offset) put({std::move(*tensors), {place.epoch, offset}}, stop);
      }
      if (stop.stop_requested()) return;
      check_end(place, offset);
      if (!options_.repeat) return;
    }
  }

  void check_end(Position begin, int64_t end) const {
    if (end < begin.offset) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "a generator ended before the position at which the run should go on",
                   .expected = fmt::format("at least {} samples in epoch {}", begin.offset, begin.epoch),
                   .actual = std::to_string(end),
                   .remedy = "resume with the data with which the run began"});
    }
    if (end > 0 || !options_.repeat) return;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a generator ended without a batch",
                                              .where = fmt::format("epoch {}", begin.epoch),
                                              .remedy = "make a new generator for each epoch, or do not repeat"});
  }

  void put(Made made, const core::StopToken& stop) {
    const auto most = static_cast<size_t>(options_.replicas) * static_cast<size_t>(options_.prefetch_batches);
    std::unique_lock lock(mutex_);
    taken_.wait(lock, [&] { return stop.stop_requested() || queue_.size() < most; });
    queue_.push_back(std::move(made));
    if (queue_.size() >= static_cast<size_t>(options_.replicas)) made_.notify_all();
  }

  const MakeGenerator make_;
  const GeneratorSourceOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable made_, taken_;
  std::deque<Made> queue_;
  std::exception_ptr error_;  // what ended the thread, with ended_
  bool started_ = false, ended_ = false, stopped_ = false;
  core::StopSource wanted_;  // of the thread that runs
  Position position_;
  double waited_ = 0;
  std::mutex join_mutex_;  // guards thread_
  std::unique_ptr<core::Thread> thread_;
};

GeneratorSource::GeneratorSource(MakeGenerator make, const GeneratorSourceOptions& options)
    : SourceDecorator(std::make_shared<Worker>(std::move(make), options)), repeats_(options.repeat) {}
GeneratorSource::~GeneratorSource() = default;

}  // namespace trainyard::data
