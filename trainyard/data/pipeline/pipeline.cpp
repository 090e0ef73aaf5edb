#include "trainyard/data/pipeline/pipeline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/batch_job.h"
#include "trainyard/data/pipeline/sample_maker.h"
#include "trainyard/data/pipeline/sample_sequence.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr int64_t kLongestSide = 1 << 20;
constexpr int64_t kMostBytes = int64_t{1} << 47;  // of a global batch: what a process can address

void require(bool holds, std::string_view name, std::string_view expected, int64_t actual) {
  if (holds) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("pipeline option {} is out of range", name),
                                            .expected = std::string(expected),
                                            .actual = fmt::format("{}", actual)});
}

}  // namespace

void PipelineOptions::validate() const {
  require(batch_size > 0, "batch_size", "at least 1", batch_size);
  require(local_replicas > 0, "local_replicas", "at least 1", local_replicas);
  require(first_replica >= 0, "first_replica", "at least 0", first_replica);
  require(total_replicas >= first_replica + local_replicas, "total_replicas",
          fmt::format("at least first_replica + local_replicas = {}", first_replica + local_replicas), total_replicas);
  require(height > 0, "height", "at least 1 pixel", height);
  require(width > 0, "width", "at least 1 pixel", width);
  require(height <= kLongestSide, "height", fmt::format("at most {} pixels", kLongestSide), height);
  require(width <= kLongestSide, "width", fmt::format("at most {} pixels", kLongestSide), width);
  const int64_t most = kMostBytes / (3 * height * width * static_cast<int64_t>(sizeof(float))) / total_replicas;
  require(batch_size <= most, "batch_size", fmt::format("at most {} images of {} x {}", most, height, width),
          batch_size);
  require(worker_threads > 0, "worker_threads", "at least 1", worker_threads);
  require(prefetch_batches > 0, "prefetch_batches", "at least 1", prefetch_batches);
  order.validate();
  bad_samples.validate();
}

// Workers claim one sample at a time, always of the earliest batch that has any left, so the batch that next() waits
// for is ready as soon as it can be. Memory is bounded by the batches in the ring and those that consumers hold.
class Pipeline::Workers {
 public:
  Workers(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Transform> transform,
          const PipelineOptions& options)
      : options_(options),
        form_(transform->form()),
        dataset_size_(dataset->size()),
        sequence_(dataset_size_, options.order, options.seed),
        tally_(options.bad_samples, dataset_size_),
        maker_(std::move(dataset), std::move(transform),
               {.image_bytes = image_bytes(options, form_),
                .repeat = options.repeat,
                .repeat_cached_sample = options.repeat_cached_sample,
                .seed = options.seed,
                .label_offset = options.label_offset,
                .bad_samples = options.bad_samples},
               [this](Position place) {
                 std::lock_guard lock(mutex_);
                 return sequence_.sample_at(place);
               }) {}
  ~Workers() { stop(); }

  std::vector<Batch> next() {
    const auto start = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    start_threads();
    ready_.wait(lock, [&] { return stopped_ || (ring_.empty() ? exhausted(open_at_) : ring_.front()->complete()); });
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (stopped_) throw Error(ErrorCode::kCancelled, "input pipeline was stopped");
    if (ring_.empty()) return {};
    for (const BatchSlot& slot : ring_.front()->slots) tally_.add(slot.bad);
    if (ring_.front()->error) std::rethrow_exception(ring_.front()->error);
    compare_texts(ring_.front()->slots);
    ring_.front()->leave_out();
    std::vector<Batch> batches = std::move(ring_.front()->batches);
    ring_.pop_front();
    position_ = batches.front().after;
    const bool all = options_.local_replicas == options_.total_replicas && texts_from_start_;
    if (options_.label_texts && all && (position_.epoch > 0 || exhausted(position_))) {
      options_.label_texts->set_complete();
    }
    work_.notify_all();
    return batches;
  }

  double waited_seconds() const {
    std::lock_guard lock(mutex_);
    return waited_;
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    work_.notify_all();
    ready_.notify_all();
    std::lock_guard joining(join_mutex_);
    threads_.clear();  // joins
  }

  Position position() const {
    std::lock_guard lock(mutex_);
    return position_;
  }

  PipelineStatistics statistics() const {
    std::lock_guard lock(mutex_);
    PipelineStatistics all = statistics_;
    all.bytes = maker_.bytes();
    return all;
  }

  int64_t bad_samples() const {
    std::lock_guard lock(mutex_);
    return tally_.count();
  }

  void save(core::StateWriter& writer) const {
    std::lock_guard lock(mutex_);
    tally_.save(writer);
    if (options_.label_texts) options_.label_texts->save(writer);
  }

  void load(const core::StateReader& reader) {
    std::lock_guard lock(mutex_);
    tally_.load(reader);
    if (options_.label_texts) {
      texts_from_start_ =
          position_ == Position{} || options_.label_texts->load(reader, "the data that the checkpoint was trained on");
    }
  }

  // Samples in work for batches that are thrown away are finished into memory that nobody reads.
  void seek(Position position) {
    std::lock_guard lock(mutex_);
    const bool at_end = !options_.repeat && position.offset == dataset_size_;
    position_ = open_at_ = at_end ? position : sequence_.normalized(position);
    ring_.clear();
    work_.notify_all();
  }

 private:
  // Of the batch that is about to be given out, not of those ahead: what is known after a step is the same in each run.
  void compare_texts(const std::vector<BatchSlot>& slots) const {
    for (const BatchSlot& slot : slots) {
      if (slot.left_out || slot.label_text.empty()) continue;
      if (options_.known_texts) options_.known_texts->check(*slot.label, slot.label_text, slot.where);
      if (options_.label_texts) options_.label_texts->add(*slot.label, slot.label_text, slot.where);
    }
  }

  bool exhausted(Position place) const { return !options_.repeat && place.offset == dataset_size_; }

  // Called with mutex_ held. Who stops holds join_mutex_ until the workers have ended, and those need mutex_: so it is
  // asked for only while nobody has stopped, which nobody can do now.
  void start_threads() {
    if (stopped_ || started_) return;
    std::lock_guard joining(join_mutex_);
    threads_.reserve(options_.worker_threads);
    for (int i = 0; i < options_.worker_threads; ++i) {
      threads_.emplace_back(core::ThreadOptions{.name = fmt::format("input-{}", i)}, [this] { run(); });
      started_ = true;
    }
  }

  void run() {
    const StageTimer timer(Stage::kWait);
    std::unique_lock lock(mutex_);
    for (;;) {
      std::shared_ptr<BatchJob> job;
      work_.wait(lock, [&] { return stopped_ || (job = claimable()) != nullptr; });
      if (stopped_) return;
      const size_t slot = job->claimed++;
      lock.unlock();
      std::exception_ptr error;
      try {
        maker_.make(job->slots[slot]);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      statistics_.seconds += take_stage_seconds();
      ++statistics_.samples;
      if (error) job->fail(slot, error);
      ++job->finished;
      if (job->complete()) ready_.notify_all();
    }
  }

  // The earliest batch with samples left, opened now if there is room for one more.
  std::shared_ptr<BatchJob> claimable() {
    for (const auto& job : ring_) {
      if (job->claimed < job->slots.size()) return job;
    }
    while (ring_.size() < static_cast<size_t>(options_.prefetch_batches) && !exhausted(open_at_)) {
      auto job = std::make_shared<BatchJob>();
      try {
        open(*job);
      } catch (...) {
        *job = BatchJob();
        job->fail(0, std::current_exception());
      }
      ring_.push_back(job);
      if (!job->slots.empty()) {
        work_.notify_all();
        return job;
      }
      ready_.notify_all();
      if (job->error) break;  // of no use to try again at once
    }
    return nullptr;
  }

  // Decides which samples the next batch holds and allocates it.
  void open(BatchJob& job) {
    const StageTimer timer(Stage::kCollate);
    const int64_t global_size = options_.batch_size * options_.total_replicas;
    const int64_t left = options_.repeat ? global_size : std::min(global_size, dataset_size_ - open_at_.offset);
    Position after = sequence_.advanced(open_at_, left);
    if (!options_.repeat) after = {open_at_.epoch, open_at_.offset + left};
    for (int r = 0; r < options_.local_replicas; ++r) {
      const int64_t first = (options_.first_replica + r) * options_.batch_size;
      const int64_t count = std::clamp<int64_t>(left - first, 0, options_.batch_size);
      Batch batch{.tensors = {{"images", images(count)}, {"labels", memory({count}, at::kLong)}},
                  .first_sample = first,
                  .after = after};
      auto* image = static_cast<std::byte*>(batch.images().mutable_data_ptr());
      int64_t* label = batch.labels().mutable_data_ptr<int64_t>();
      for (int64_t i = 0; i < count; ++i) {
        const Position place = sequence_.advanced(open_at_, first + i);
        job.slots.push_back({.key = {options_.seed, place.epoch, sequence_.sample_at(place), i},
                             .place = place,
                             .image = image,
                             .label = label});
        image += image_bytes(options_, form_);
        ++label;
      }
      job.batches.push_back(std::move(batch));
    }
    open_at_ = after;
  }

  at::Tensor memory(at::IntArrayRef sizes, at::ScalarType dtype) const {
    return options_.allocate ? options_.allocate(sizes, dtype) : at::empty(sizes, dtype);
  }

  static int64_t image_bytes(const PipelineOptions& options, const ImageForm& form) {
    return 3 * options.height * options.width * static_cast<int64_t>(c10::elementSize(form.dtype));
  }
  at::Tensor images(int64_t count) const {
    const std::array<int64_t, 4> sizes = {count, 3, options_.height, options_.width};
    if (form_.device.is_cpu() && form_.layout == at::MemoryFormat::Contiguous) return memory(sizes, form_.dtype);
    return at::empty(sizes, at::TensorOptions(form_.dtype).device(form_.device), form_.layout);
  }

  const PipelineOptions options_;
  const ImageForm form_;
  const int64_t dataset_size_;

  mutable std::mutex mutex_;  // of all below, up to stopped_
  std::condition_variable work_, ready_;
  SampleSequence sequence_;
  std::deque<std::shared_ptr<BatchJob>> ring_;  // batches made ahead, in order
  Position open_at_;                            // of the next batch to open
  Position position_;                           // after the last one that next() returned
  bool texts_from_start_ = true;                // label_texts are those of all batches so far
  BadSampleTally tally_;
  double waited_ = 0;
  PipelineStatistics statistics_;
  bool started_ = false, stopped_ = false;

  SampleMaker maker_;

  std::mutex join_mutex_;
  std::vector<core::Thread> threads_;  // last: ends before what it uses
};

Pipeline::Pipeline(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Transform> transform,
                   PipelineOptions options)
    : options_(std::move(options)) {
  options_.validate();
  if (options_.repeat_cached_sample && !transform->form().device.is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "one cached sample cannot be repeated where images are made on another device",
                 .remedy = "repeat it on the CPU, or make each sample"});
  }
  if (transform->size() != ImageSize{static_cast<int>(options_.height), static_cast<int>(options_.width)}) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the transform makes images of another size than the pipeline's",
                 .expected = fmt::format("{} x {}", options_.height, options_.width),
                 .actual = fmt::format("{} x {}", transform->size().height, transform->size().width),
                 .remedy = "give both the same height and width"});
  }
  if (dataset->size() == 0) throw Error(ErrorCode::kInvalidArgument, "data set holds no samples");
  workers_ = std::make_unique<Workers>(std::move(dataset), std::move(transform), options_);
}

Pipeline::~Pipeline() = default;

std::vector<Batch> Pipeline::next() {
  return workers_->next();
}
double Pipeline::waited_seconds() const {
  return workers_->waited_seconds();
}
void Pipeline::stop() {
  workers_->stop();
}
Position Pipeline::position() const {
  return workers_->position();
}
void Pipeline::seek(Position position) {
  workers_->seek(position);
}
PipelineStatistics Pipeline::statistics() const {
  return workers_->statistics();
}
int64_t Pipeline::bad_samples() const {
  return workers_->bad_samples();
}
void Pipeline::save(core::StateWriter& writer) const {
  BatchSource::save(writer);
  workers_->save(writer);
}
void Pipeline::load(const core::StateReader& reader) {
  BatchSource::load(reader);
  workers_->load(reader);
}

}  // namespace trainyard::data
