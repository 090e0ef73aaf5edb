#include "trainyard/train/checkpoint/checkpoint_copy.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>

#include <ATen/ops/empty_like.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/core/system/cgroup.h"
#include "trainyard/core/system/system_files.h"
#include "trainyard/train/checkpoint/checkpoint_finite.h"
#include "trainyard/train/checkpoint/checkpoint_writer.h"
#include "trainyard/train/devices/run_memory.h"

namespace trainyard::train {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;

struct NoRoom {};

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

}  // namespace

class CheckpointCopy::Writer : public core::StateWriter {
 public:
  Writer(CheckpointCopy& copy, const CheckpointCopy* before, int64_t budget)
      : copy_(copy), before_(before), budget_(budget) {}

  void tensor(const std::string& name, const at::Tensor& value) override {
    require_savable(name, value);
    core::count_work();
    copy_.tensors_.push_back(copy_.entries_.size());
    copy_.bytes_ += static_cast<int64_t>(value.nbytes());
    copy_.entries_.emplace_back(name, copied(name, value));
  }
  void integer(const std::string& name, int64_t value) override { copy_.entries_.emplace_back(name, value); }
  void real(const std::string& name, double value) override { copy_.entries_.emplace_back(name, value); }
  void text(const std::string& name, std::string_view value) override {
    copy_.entries_.emplace_back(name, std::string(value));
  }

  // Returns whether all tensors are those of `before`, in the same order.
  bool all_shared() const {
    return before_ != nullptr && shared_ == copy_.tensors_.size() && shared_ == before_->tensors_.size();
  }

 private:
  at::Tensor copied(const std::string& name, const at::Tensor& value) {
    // A tensor of a device, or one that is not contiguous, becomes a new one here, which is the copy.
    if (!value.device().is_cpu() || !value.is_contiguous()) take(value.nbytes());
    const at::Tensor plain = value.detach().cpu().contiguous();
    if (const at::Tensor* other = counterpart(name); other != nullptr && same_bits(*other, plain)) {
      ++shared_;
      return *other;
    }
    const bool is_new = !plain.is_alias_of(value);
    at::Tensor copy = plain;
    if (!is_new) {
      take(plain.nbytes());
      copy = at::empty_like(plain);
    }
    const bool looks = must_be_finite(name, plain.scalar_type(), plain.dim());
    const std::span<const std::byte> from = bytes_of(plain);
    auto* const to = static_cast<std::byte*>(copy.mutable_data_ptr());
    int64_t not_finite = 0;
    // Chunk by chunk: what is looked at is in the cache.
    for (size_t begin = 0; begin < from.size(); begin += kChunkBytes) {
      const std::span chunk = from.subspan(begin, std::min(kChunkBytes, from.size() - begin));
      if (!is_new) std::memcpy(to + begin, chunk.data(), chunk.size());
      if (looks) not_finite += count_non_finite(plain.scalar_type(), chunk);
    }
    if (not_finite > 0) refuse_non_finite(name, copy_.global_step_, not_finite, plain.numel());
    return copy;
  }

  // Returns the tensor of `before` at the same place; null: there is another one, or none.
  const at::Tensor* counterpart(const std::string& name) const {
    const size_t place = copy_.tensors_.size() - 1;
    if (before_ == nullptr || place >= before_->tensors_.size()) return nullptr;
    const auto& [other_name, value] = before_->entries_[before_->tensors_[place]];
    return other_name == name ? &std::get<at::Tensor>(value) : nullptr;
  }

  void take(size_t bytes) {
    budget_ -= static_cast<int64_t>(bytes);
    if (budget_ < 0) throw NoRoom{};
  }

  CheckpointCopy& copy_;
  const CheckpointCopy* before_;
  int64_t budget_;
  size_t shared_ = 0;
};

std::shared_ptr<const CheckpointCopy> CheckpointCopy::of(const core::Stateful& state, int64_t global_step,
                                                         const CheckpointCopy* before, int64_t budget) {
  std::shared_ptr<CheckpointCopy> copy(new CheckpointCopy(global_step));
  Writer writer(*copy, before, budget);
  try {
    state.save(writer);
  } catch (const NoRoom&) {
    return nullptr;
  } catch (const core::Error& error) {
    if (error.code() != core::ErrorCode::kNoSpace) throw;
    return nullptr;  // the allocator's own limit (core/memory/cpu_allocator.h)
  }
  copy->written_ = writer.all_shared() ? before->written_ : std::make_shared<WrittenTensors>();
  return copy;
}

void CheckpointCopy::save(core::StateWriter& writer) const {
  for (const auto& [name, value] : entries_) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      writer.tensor(name, *tensor);
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      writer.integer(name, *integer);
    } else if (const auto* real = std::get_if<double>(&value)) {
      writer.real(name, *real);
    } else {
      writer.text(name, std::get<std::string>(value));
    }
  }
}

int64_t checkpoint_copy_budget() {
  int64_t budget = std::numeric_limits<int64_t>::max();
  if (const uint64_t free = core::memory_info_bytes("MemAvailable"); free > 0) budget = static_cast<int64_t>(free / 2);
  if (const auto limit = core::cgroup_limits().memory_bytes) {
    const auto allowed = static_cast<int64_t>(*limit / 10 * 9);
    budget = std::min(budget, allowed - resident_bytes());
  }
  return std::max<int64_t>(budget, 0);
}

}  // namespace trainyard::train
