#include "trainyard/data/pipeline/pipeline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/augment/mixing.h"
#include "trainyard/data/datasets/label_texts.h"
#include "trainyard/data/pipeline/batch_job.h"
#include "trainyard/data/pipeline/sample_maker.h"
#include "trainyard/data/pipeline/sample_sequence.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr int64_t kLongestSide = 1 << 20;
constexpr int64_t kMostCopies = 1 << 10;
constexpr int64_t kMostLabels = 1 << 24;
constexpr int64_t kMostBytes = int64_t{1} << 47;  // of a global batch: what a process can address

// Copies of one sample differ in what is drawn for them. The first one is the sample as it is without repetition.
uint64_t seed_of_copy(uint64_t seed, int64_t copy) {
  if (copy == 0) return seed;
  return core::RandomStream(seed, "repeated_augmentation", {static_cast<uint64_t>(copy)}).next_u64();
}

std::vector<size_t> target_bytes(const Transform& transform) {
  std::vector<size_t> bytes;
  if (transform.targets() == nullptr) return bytes;
  for (const SampleTensor& target : *transform.targets()) {
    const int64_t numbers = std::accumulate(target.sizes.begin(), target.sizes.end(), int64_t{1}, std::multiplies<>());
    bytes.push_back(static_cast<size_t>(numbers) * c10::elementSize(target.dtype));
  }
  return bytes;
}

// Returns where the targets of the batch's sample `i` are.
std::vector<void*> targets_of(const Batch& batch, const std::vector<SampleTensor>* targets, int64_t i) {
  std::vector<void*> places;
  if (targets == nullptr) return places;
  places.reserve(targets->size());
  for (const SampleTensor& target : *targets) {
    const at::Tensor& tensor = batch.tensors[target.name];
    places.push_back(static_cast<std::byte*>(tensor.mutable_data_ptr()) +
                     i * tensor.stride(0) * static_cast<int64_t>(tensor.element_size()));
  }
  return places;
}

ImageSize size_of(const PipelineOptions& options) {
  return {static_cast<int>(options.height), static_cast<int>(options.width)};
}

// Images that are made at one time have one memory, and one kind of pixels.
void check_transforms(const Transform& first, const PipelineOptions& options) {
  const ImageForm form = first.form();
  int64_t last_epoch = -1;
  for (const EpochTransform& entry : options.transforms_by_epoch) {
    const auto refuse_unless = [&](bool holds, const char* problem, const std::string& expected) {
      if (holds) return;
      throw Error(ErrorCode::kInvalidArgument, {.problem = problem,
                                                .where = fmt::format("the images from epoch {} on", entry.from_epoch),
                                                .expected = expected});
    };
    refuse_unless(entry.from_epoch > last_epoch, "epochs of image sizes do not ascend",
                  fmt::format("at least {}", last_epoch + 1));
    last_epoch = entry.from_epoch;
    refuse_unless(entry.transform != nullptr, "images of an epoch have no transform", "a transform");
    const ImageForm other = entry.transform->form();
    refuse_unless((entry.transform->targets() == nullptr) == (first.targets() == nullptr),
                  "images of an epoch have other targets", "labels, or tensors of the transform, in all epochs");
    refuse_unless(other.dtype == form.dtype && other.device == form.device && other.layout == form.layout,
                  "images of an epoch have another form", "the dtype, device and layout of the others");
    PipelineOptions resized = options;
    resized.height = entry.transform->size().height;
    resized.width = entry.transform->size().width;
    resized.transforms_by_epoch.clear();
    resized.validate();
  }
  if (!options.repeat_cached_sample || options.transforms_by_epoch.empty()) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "one cached sample cannot be repeated at several sizes", .remedy = "leave one of them out"});
}

void require(bool holds, std::string_view name, std::string_view expected, int64_t actual) {
  if (holds) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("pipeline option {} is out of range", name),
                                            .expected = std::string(expected),
                                            .actual = fmt::format("{}", actual)});
}

// Returns options.balanced_labels without the classes whose samples are all bad because the model has no output for
// them, ImageNet's background: a class that others always stand in for would take a turn in each round.
std::shared_ptr<const std::vector<int64_t>> drawn_labels(const PipelineOptions& options) {
  const bool fails = options.bad_samples.policy == OnBadSample::kFail;
  if (!options.balanced_labels || fails || options.label_offset >= 0) return options.balanced_labels;
  std::vector<int64_t> labels = *options.balanced_labels;
  for (int64_t& label : labels) {
    if (label + options.label_offset < 0) label = -1;
  }
  return std::make_shared<const std::vector<int64_t>>(std::move(labels));
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
  require(repeated_augmentation > 0 && repeated_augmentation <= kMostCopies, "repeated_augmentation",
          fmt::format("1 to {}", kMostCopies), repeated_augmentation);
  mix.validate();
  require(label_set_size >= 0 && label_set_size <= kMostLabels, "label_set_size", fmt::format("0 to {}", kMostLabels),
          label_set_size);
  require(label_set_size == 0 || !mix.enabled(), "label_set_size", "0, because images of one label are mixed",
          label_set_size);
  require(label_set_size == 0 || !repeat_cached_sample, "label_set_size", "0, because one cached sample has one label",
          label_set_size);
  if (balanced_labels) {
    require(order.shuffle && repeat, "balanced_labels", "an order that is shuffled, and an epoch without an end", 0);
    require(repeated_augmentation == 1, "repeated_augmentation", "1, because balanced classes repeat samples",
            repeated_augmentation);
  }
  if (mix.enabled()) {
    require(batch_size % 2 == 0, "batch_size", "an even number, because images are mixed in pairs", batch_size);
    require(repeat, "repeat", "true, because only an epoch without an end has a partner for each image", 0);
  }
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
        transform_(std::move(transform)),
        form_(transform_->form()),
        dataset_size_(dataset->size()),
        slots_a_claim_(options.mix.enabled() ? 2 : 1),
        sequence_(dataset_size_, options.order, options.seed, options.repeated_augmentation,
                  options.balanced_labels.get()),
        tally_(options.bad_samples, dataset_size_),
        maker_(std::move(dataset),
               {.image_bytes = image_bytes(transform_->size()),
                .repeat = options.repeat,
                .repeat_cached_sample = options.repeat_cached_sample,
                .seed = options.seed,
                .label_offset = options.label_offset,
                .label_set_size = options.label_set_size,
                .target_bytes = target_bytes(*transform_),
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
    waited_ += core::seconds_since(start);
    if (stopped_) throw Error(ErrorCode::kCancelled, "input pipeline was stopped");
    if (ring_.empty()) return {};
    for (const BatchSlot& slot : ring_.front()->slots) tally_.add(slot.bad);
    if (ring_.front()->error) std::rethrow_exception(ring_.front()->error);
    compare_texts(ring_.front()->slots);
    ring_.front()->leave_out();
    std::vector<Batch> batches = std::move(ring_.front()->batches);
    ring_.pop_front();
    position_ = batches.front().after;
    const bool all =
        options_.local_replicas == options_.total_replicas && texts_from_start_ && !options_.balanced_labels;
    if (options_.label_texts && all && (position_.epoch >= options_.repeated_augmentation || exhausted(position_))) {
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

  // Samples in work for discarded batches are finished into memory that is not read.
  void seek(Position position) {
    std::lock_guard lock(mutex_);
    const bool at_end = !options_.repeat && position.offset == dataset_size_;
    position_ = open_at_ = at_end ? position : sequence_.normalized(position);
    ring_.clear();
    work_.notify_all();
  }

 private:
  // Counts those of the batch that is about to be returned, not of batches made ahead, so that the count after a step
  // is the same in each run.
  void compare_texts(const std::vector<BatchSlot>& slots) const {
    for (const BatchSlot& slot : slots) {
      if (slot.left_out || slot.label_text.empty()) continue;
      if (options_.known_texts) options_.known_texts->check(slot.text_label, slot.label_text, slot.where);
      if (options_.label_texts) options_.label_texts->add(slot.text_label, slot.label_text, slot.where);
    }
  }

  bool exhausted(Position place) const { return !options_.repeat && place.offset == dataset_size_; }

  // Called with mutex_ held. stop() holds join_mutex_ until the workers have ended, and those need mutex_: so
  // join_mutex_ is taken only before any stop(), and mutex_ keeps stop() from beginning now.
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
      const size_t first = job->claimed;
      job->claimed += slots_a_claim_;
      lock.unlock();
      size_t slot = first;
      std::exception_ptr error;
      try {
        for (; slot < first + slots_a_claim_; ++slot) maker_.make(job->slots[slot]);
        if (options_.mix.enabled()) mix(job->slots[first], job->slots[first + 1]);
        core::count_work();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      statistics_.seconds += take_stage_seconds();
      statistics_.samples += static_cast<int64_t>(slots_a_claim_);
      if (error) job->fail(std::min(slot, first + slots_a_claim_ - 1), error);
      job->finished += slots_a_claim_;
      if (job->complete()) ready_.notify_all();
    }
  }

  // While both images are in the caches of the core that has made them.
  void mix(BatchSlot& first, BatchSlot& second) const {
    const StageTimer timer(Stage::kMix);
    const ImageSize size = first.transform->size();
    core::RandomStream random = mixing_stream(options_.seed, first.place.epoch, first.place.offset);
    const Mix mix = draw_mix(options_.mix, size, random);
    mix_pair(mix, form_, size, first.image, second.image);
    const bool exchanged = mix.share < 0.5;  // then the other image's label has the larger share
    if (exchanged) std::swap(*first.label, *second.label);
    *first.other_label = mix.kind == Mix::Kind::kNone ? *first.label : *second.label;
    *second.other_label = mix.kind == Mix::Kind::kNone ? *second.label : *first.label;
    *first.label_share = *second.label_share = static_cast<float>(exchanged ? 1 - mix.share : mix.share);
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
    const Transform& transform = transform_at(open_at_.epoch);
    for (int r = 0; r < options_.local_replicas; ++r) {
      const int64_t first = (options_.first_replica + r) * options_.batch_size;
      const int64_t count = std::clamp<int64_t>(left - first, 0, options_.batch_size);
      const int64_t set_size = options_.label_set_size;
      Batch batch{.tensors = {{"images", images(count, transform.size())}}, .first_sample = first, .after = after};
      auto* image = static_cast<std::byte*>(batch.images().mutable_data_ptr());
      int64_t* label = nullptr;
      float* label_row = nullptr;
      const std::vector<SampleTensor>* const targets = transform.targets();
      if (targets == nullptr) {
        batch.tensors.set("labels", set_size > 0 ? memory({count, set_size}, at::kFloat) : memory({count}, at::kLong));
        if (set_size > 0) {
          label_row = batch.labels().mutable_data_ptr<float>();
        } else {
          label = batch.labels().mutable_data_ptr<int64_t>();
        }
      } else {
        for (const SampleTensor& target : *targets) {
          std::vector<int64_t> sizes = target.sizes;
          sizes.insert(sizes.begin(), count);
          batch.tensors.set(target.name, memory(sizes, target.dtype));
        }
      }
      int64_t* other_label = nullptr;
      float* label_share = nullptr;
      if (options_.mix.enabled()) {
        batch.tensors.set("labels_mixed", memory({count}, at::kLong));
        batch.tensors.set("label_shares", memory({count}, at::kFloat));
        other_label = batch.tensors["labels_mixed"].mutable_data_ptr<int64_t>();
        label_share = batch.tensors["label_shares"].mutable_data_ptr<float>();
      }
      for (int64_t i = 0; i < count; ++i) {
        const Position place = sequence_.advanced(open_at_, first + i);
        const RepeatedSample sample = sequence_.repeated_sample_at(place);
        job.slots.push_back({.key = {seed_of_copy(options_.seed, sample.copy), place.epoch, sample.sample, i},
                             .place = place,
                             .transform = &transform,
                             .image = image,
                             .label = label,
                             .label_row = label_row,
                             .targets = targets_of(batch, targets, i),
                             .other_label = other_label,
                             .label_share = label_share});
        image += image_bytes(transform.size());
        if (label != nullptr) ++label;
        if (label_row != nullptr) label_row += set_size;
        if (other_label != nullptr) {
          ++other_label;
          ++label_share;
        }
      }
      job.batches.push_back(std::move(batch));
    }
    open_at_ = after;
  }

  at::Tensor memory(at::IntArrayRef sizes, at::ScalarType dtype) const {
    return options_.allocate ? options_.allocate(sizes, dtype) : at::empty(sizes, dtype);
  }

  const Transform& transform_at(int64_t epoch) const {
    const Transform* transform = transform_.get();
    for (const EpochTransform& entry : options_.transforms_by_epoch) {
      if (entry.from_epoch <= epoch) transform = entry.transform.get();
    }
    return *transform;
  }

  int64_t image_bytes(ImageSize size) const {
    return int64_t{3} * size.height * size.width * static_cast<int64_t>(c10::elementSize(form_.dtype));
  }
  at::Tensor images(int64_t count, ImageSize size) const {
    const std::array<int64_t, 4> sizes = {count, 3, size.height, size.width};
    if (form_.device.is_cpu() && form_.layout == at::MemoryFormat::Contiguous) return memory(sizes, form_.dtype);
    return at::empty(sizes, at::TensorOptions(form_.dtype).device(form_.device), form_.layout);
  }

  const PipelineOptions options_;
  const std::shared_ptr<const Transform> transform_;  // of epochs for which options_ have no other
  const ImageForm form_;
  const int64_t dataset_size_;
  const size_t slots_a_claim_;  // 2: a pair that is mixed

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
  check_mixing(options_.mix, transform->form());
  check_transforms(*transform, options_);
  if (transform->size() != size_of(options_)) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the transform makes images of another size than the pipeline's",
                 .expected = fmt::format("{} x {}", options_.height, options_.width),
                 .actual = fmt::format("{} x {}", transform->size().height, transform->size().width),
                 .remedy = "give both the same height and width"});
  }
  if (transform->targets() != nullptr && options_.mix.enabled()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "images whose targets are no labels cannot be mixed",
                                              .remedy = "leave mixup and CutMix out"});
  }
  if (dataset->has_label_sets() != (options_.label_set_size > 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the samples have another kind of labels than the batches",
                 .expected = options_.label_set_size > 0 ? "any number of labels a sample" : "one label a sample",
                 .remedy = "set label_set_size for a data set with has_label_sets(), and for no other"});
  }
  if (options_.balanced_labels && std::ssize(*options_.balanced_labels) != dataset->size()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "labels to balance are not those of the data set",
                                              .expected = fmt::format("{}", dataset->size()),
                                              .actual = fmt::format("{}", options_.balanced_labels->size())});
  }
  if (dataset->size() == 0) throw Error(ErrorCode::kInvalidArgument, "data set holds no samples");
  options_.balanced_labels = drawn_labels(options_);
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
