#include "trainyard/data/pipeline/sample_maker.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include <fmt/core.h>

#include "trainyard/data/base/stage_times.h"

namespace trainyard::data {

using core::Error;
using core::ErrorCode;

void SampleMaker::make(BatchSlot& slot) {
  if (!options_.repeat_cached_sample) return make_uncached(slot);
  std::call_once(cached_, [&] {
    cached_image_.resize(static_cast<size_t>(options_.image_bytes));
    cached_slot_ = {.key = {options_.seed, 0, 0, 0},
                    .transform = slot.transform,
                    .image = cached_image_.data(),
                    .label = slot.label != nullptr ? &cached_label_ : nullptr};
    for (const size_t bytes : options_.target_bytes) {
      cached_slot_.targets.push_back(cached_targets_.emplace_back(bytes).data());
    }
    make_uncached(cached_slot_);
  });
  const StageTimer timer(Stage::kCollate);
  std::memcpy(slot.image, cached_image_.data(), cached_image_.size());
  if (slot.label != nullptr) *slot.label = cached_label_;
  for (size_t i = 0; i < slot.targets.size(); ++i) {
    std::memcpy(slot.targets[i], cached_targets_[i].data(), cached_targets_[i].size());
  }
  slot.sample = cached_slot_.sample;
  slot.bad = cached_slot_.bad;
  slot.left_out = cached_slot_.left_out;
}

// The sample that belongs into the slot, or what takes the place of a bad one.
void SampleMaker::make_uncached(BatchSlot& slot) {
  core::Result<void> made = make_sample(slot.key, slot);
  if (made.ok()) return;
  const OnBadSample policy = options_.bad_samples.policy;
  if (policy == OnBadSample::kFail) throw failure_of(made.error());
  slot.bad.push_back({slot.key.sample, made.error()});
  if (policy == OnBadSample::kSkip && !options_.repeat) {
    slot.left_out = true;
    return;
  }
  SubstituteSamples stand_ins(policy, slot.key, slot.place, dataset_->size(), sample_at_);
  // More than the budget, or all that there are, and the run ends with this batch.
  const int64_t enough = std::min(options_.bad_samples.allowed(dataset_->size()) + 1, dataset_->size());
  std::set<int64_t> met = {slot.key.sample};
  // Skipping looks at one epoch, which may hold fewer samples than the data set: repeated ones, or balanced classes.
  int64_t left = policy == OnBadSample::kSkip ? dataset_->size() : std::numeric_limits<int64_t>::max();
  for (; static_cast<int64_t>(met.size()) < enough && left > 0; --left) {
    const SampleKey key = stand_ins.next();
    made = make_sample(key, slot);
    if (made.ok()) return;
    slot.bad.push_back({key.sample, made.error()});
    met.insert(key.sample);
  }
  throw Error(made.error());
}

core::Result<void> SampleMaker::set_label(const Record& record, BatchSlot& slot) const {
  const auto out_of_range = [&](const char* problem, int64_t label, const std::string& expected) {
    return Error(ErrorCode::kCorruptData, {.problem = problem,
                                           .where = record.where,
                                           .expected = expected,
                                           .actual = fmt::format("{}", label),
                                           .remedy = "use the number of classes that the data set was made for"});
  };
  if (slot.label != nullptr) {
    *slot.label = record.label + options_.label_offset;
    if (*slot.label >= 0) return {};
    return out_of_range("label is negative", record.label, fmt::format("at least {}", -options_.label_offset));
  }
  if (slot.label_row == nullptr) return {};
  std::fill_n(slot.label_row, options_.label_set_size, 0.0F);
  for (const int64_t label : record.labels) {
    const int64_t output = label + options_.label_offset;
    if (output < 0 || output >= options_.label_set_size) {
      return out_of_range("a label is not one of the model's outputs", output,
                          fmt::format("0 to {}", options_.label_set_size - 1));
    }
    slot.label_row[output] = 1;
  }
  return {};
}

// A bad sample is an error, what else goes wrong is thrown.
core::Result<void> SampleMaker::make_sample(const SampleKey& key, BatchSlot& slot) {
  core::Result<Record> read = [&] {
    const StageTimer timer(Stage::kRead);
    return dataset_->read(key.sample);
  }();
  if (!read.ok()) return read.error();
  Record& record = read.value();
  slot.sample = key.sample;
  bytes_ += static_cast<int64_t>(record.bytes.size());
  if (core::Result<void> labelled = set_label(record, slot); !labelled.ok()) return labelled;
  const StageTimer timer(Stage::kAugment);
  core::Result<void> applied = slot.transform->apply_with_targets(record, key, slot.image, slot.targets);
  if (applied.ok() && slot.label != nullptr && !record.label_text.empty()) {
    slot.label_text = std::move(record.label_text);
    slot.where = std::move(record.where);
    slot.text_label = record.label + options_.label_offset;
  }
  return applied;
}

}  // namespace trainyard::data
