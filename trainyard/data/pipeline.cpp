#include "trainyard/data/pipeline.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <set>

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include "trainyard/core/error.h"
#include "trainyard/core/thread.h"
#include "trainyard/data/sample_sequence.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

void require(bool holds, std::string_view name, std::string_view expected, int64_t actual) {
  if (holds) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("pipeline option {} is out of range", name),
                                            .expected = std::string(expected),
                                            .actual = fmt::format("{}", actual)});
}

// One global batch in the making: the local replicas' part of it.
struct Job {
  struct Slot {
    SampleKey key;
    Position place;
    float* image;
    int64_t* label;
    std::vector<BadSample> bad;  // met here, in the order in which they were tried
    bool left_out = false;       // holds no sample
  };
  std::vector<Batch> batches;
  std::vector<Slot> slots;
  size_t claimed = 0, finished = 0;
  // Of the first bad slot, so that the same error comes out whichever thread meets its own first.
  std::exception_ptr error;
  size_t error_slot = 0;

  bool complete() const { return finished == slots.size(); }
  void leave_out();
  void fail(size_t slot, std::exception_ptr failure) {
    if (error && error_slot <= slot) return;
    error = std::move(failure);
    error_slot = slot;
  }
};

// Moves the samples of each batch together where some are left out.
void Job::leave_out() {
  auto slot = slots.begin();
  for (Batch& batch : batches) {
    const auto end = slot + batch.labels.numel();
    int64_t kept = 0;
    for (; slot != end; ++slot) {
      if (slot->left_out) continue;
      const int64_t place = slot->label - batch.labels.const_data_ptr<int64_t>();
      if (place != kept) {
        batch.images.select(0, kept).copy_(batch.images.select(0, place));
        batch.labels.select(0, kept).copy_(batch.labels.select(0, place));
      }
      ++kept;
    }
    batch.images = batch.images.narrow(0, 0, kept);
    batch.labels = batch.labels.narrow(0, 0, kept);
  }
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
  require(worker_threads > 0, "worker_threads", "at least 1", worker_threads);
  require(prefetch_batches > 0, "prefetch_batches", "at least 1", prefetch_batches);
  order.validate();
  bad_samples.validate();
}

// Workers claim one sample at a time, always of the earliest batch that has any left, so the batch that next() waits
// for is ready as soon as it can be. Memory is bounded by the batches in the ring and those that consumers hold.
class Pipeline::Workers {
 public:
  Workers(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Transform> transform, PipelineOptions options)
      : options_(options),
        dataset_(std::move(dataset)),
        transform_(std::move(transform)),
        sequence_(dataset_->size(), options.order, options.seed),
        tally_(options.bad_samples, dataset_->size()) {}
  ~Workers() { stop(); }

  std::vector<Batch> next() {
    const auto start = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    start_threads();
    ready_.wait(lock, [&] { return stopped_ || (ring_.empty() ? exhausted(open_at_) : ring_.front()->complete()); });
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (stopped_) throw Error(ErrorCode::kCancelled, "input pipeline was stopped");
    if (ring_.empty()) return {};
    for (const Job::Slot& slot : ring_.front()->slots) tally_.add(slot.bad);
    if (ring_.front()->error) std::rethrow_exception(ring_.front()->error);
    ring_.front()->leave_out();
    std::vector<Batch> batches = std::move(ring_.front()->batches);
    ring_.pop_front();
    position_ = batches.front().after;
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

  int64_t bad_samples() const {
    std::lock_guard lock(mutex_);
    return tally_.count();
  }

  void save(core::StateWriter& writer) const {
    std::lock_guard lock(mutex_);
    tally_.save(writer);
  }

  void load(const core::StateReader& reader) {
    std::lock_guard lock(mutex_);
    tally_.load(reader);
  }

  // Samples in work for batches that are thrown away are finished into memory that nobody reads.
  void seek(Position position) {
    std::lock_guard lock(mutex_);
    const bool at_end = !options_.repeat && position.offset == dataset_->size();
    position_ = open_at_ = at_end ? position : sequence_.normalized(position);
    ring_.clear();
    work_.notify_all();
  }

 private:
  bool exhausted(Position place) const { return !options_.repeat && place.offset == dataset_->size(); }

  void start_threads() {
    std::lock_guard joining(join_mutex_);
    if (stopped_ || !threads_.empty()) return;
    threads_.reserve(options_.worker_threads);
    for (int i = 0; i < options_.worker_threads; ++i) {
      threads_.emplace_back(core::ThreadOptions{.name = fmt::format("input-{}", i)}, [this] { run(); });
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      std::shared_ptr<Job> job;
      work_.wait(lock, [&] { return stopped_ || (job = claimable()) != nullptr; });
      if (stopped_) return;
      const size_t slot = job->claimed++;
      lock.unlock();
      std::exception_ptr error;
      try {
        fill(job->slots[slot]);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) job->fail(slot, error);
      ++job->finished;
      if (job->complete()) ready_.notify_all();
    }
  }

  // The earliest batch with samples left, opened now if there is room for one more.
  std::shared_ptr<Job> claimable() {
    for (const auto& job : ring_) {
      if (job->claimed < job->slots.size()) return job;
    }
    while (ring_.size() < static_cast<size_t>(options_.prefetch_batches) && !exhausted(open_at_)) {
      auto job = std::make_shared<Job>();
      try {
        open(*job);
      } catch (...) {
        *job = Job();
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
  void open(Job& job) {
    const int64_t global_size = options_.batch_size * options_.total_replicas;
    const int64_t left = options_.repeat ? global_size : std::min(global_size, dataset_->size() - open_at_.offset);
    Position after = sequence_.advanced(open_at_, left);
    if (!options_.repeat) after = {open_at_.epoch, open_at_.offset + left};
    for (int r = 0; r < options_.local_replicas; ++r) {
      const int64_t first = (options_.first_replica + r) * options_.batch_size;
      const int64_t count = std::clamp<int64_t>(left - first, 0, options_.batch_size);
      Batch batch{.images = at::empty({count, 3, options_.height, options_.width}, at::kFloat),
                  .labels = at::empty({count}, at::kLong),
                  .first_sample = first,
                  .after = after};
      float* image = batch.images.mutable_data_ptr<float>();
      int64_t* label = batch.labels.mutable_data_ptr<int64_t>();
      for (int64_t i = 0; i < count; ++i) {
        const Position place = sequence_.advanced(open_at_, first + i);
        job.slots.push_back({.key = {options_.seed, place.epoch, sequence_.sample_at(place), i},
                             .place = place,
                             .image = image,
                             .label = label});
        image += image_size();
        ++label;
      }
      job.batches.push_back(std::move(batch));
    }
    open_at_ = after;
  }

  int64_t image_size() const { return 3 * options_.height * options_.width; }

  void fill(Job::Slot& slot) {
    if (!options_.repeat_cached_sample) return make_slot(slot);
    std::call_once(cached_, [&] {
      cached_image_.resize(image_size());
      cached_slot_ = {.key = {options_.seed, 0, 0, 0}, .image = cached_image_.data(), .label = &cached_label_};
      make_slot(cached_slot_);
    });
    std::memcpy(slot.image, cached_image_.data(), cached_image_.size() * sizeof(float));
    *slot.label = cached_label_;
    slot.bad = cached_slot_.bad;
    slot.left_out = cached_slot_.left_out;
  }

  // The sample that belongs into the slot, or what takes the place of a bad one.
  void make_slot(Job::Slot& slot) {
    core::Result<bool> made = make_sample(slot.key, slot.image, slot.label);
    if (made.ok()) return;
    const OnBadSample policy = options_.bad_samples.policy;
    if (policy == OnBadSample::kFail) throw failure_of(made.error());
    slot.bad.push_back({slot.key.sample, made.error()});
    if (policy == OnBadSample::kSkip && !options_.repeat) {
      slot.left_out = true;
      return;
    }
    StandIns stand_ins(policy, slot.key, slot.place, dataset_->size(), [this](Position place) {
      std::lock_guard lock(mutex_);
      return sequence_.sample_at(place);
    });
    // More than the budget, or all that there are, and the run ends with this batch.
    const int64_t enough = std::min(options_.bad_samples.allowed(dataset_->size()) + 1, dataset_->size());
    std::set<int64_t> met = {slot.key.sample};
    while (static_cast<int64_t>(met.size()) < enough) {
      const SampleKey key = stand_ins.next();
      made = make_sample(key, slot.image, slot.label);
      if (made.ok()) return;
      slot.bad.push_back({key.sample, made.error()});
      met.insert(key.sample);
    }
    throw Error(made.error());
  }

  // A bad sample is an error, what else goes wrong is thrown.
  core::Result<bool> make_sample(const SampleKey& key, float* image, int64_t* label) const {
    core::Result<Record> read = dataset_->read(key.sample);
    if (!read.ok()) return read.error();
    const Record& record = read.value();
    *label = record.label + options_.label_offset;
    if (*label < 0) {
      return Error(ErrorCode::kCorruptData, {.problem = "label is negative",
                                             .where = record.where,
                                             .expected = fmt::format("at least {}", -options_.label_offset),
                                             .actual = fmt::format("{}", record.label),
                                             .remedy = "use the number of classes that the data set was made for"});
    }
    return transform_->apply(record, key, image);
  }

  const PipelineOptions options_;
  const std::shared_ptr<const Dataset> dataset_;
  const std::shared_ptr<const Transform> transform_;

  mutable std::mutex mutex_;  // of all below, up to the cached sample
  std::condition_variable work_, ready_;
  SampleSequence sequence_;
  std::deque<std::shared_ptr<Job>> ring_;  // batches made ahead, in order
  Position open_at_;                       // of the next batch to open
  Position position_;                      // after the last one that next() returned
  BadSampleTally tally_;
  double waited_ = 0;
  bool stopped_ = false;

  std::once_flag cached_;
  std::vector<float> cached_image_;
  int64_t cached_label_ = 0;
  Job::Slot cached_slot_;

  std::mutex join_mutex_;
  std::vector<core::Thread> threads_;  // last: ends before what it uses
};

Pipeline::Pipeline(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Transform> transform,
                   PipelineOptions options)
    : options_(options) {
  options_.validate();
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
