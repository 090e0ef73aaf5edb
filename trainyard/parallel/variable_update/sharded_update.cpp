#include "trainyard/parallel/variable_update/sharded_update.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/optim/step/finite.h"
#include "trainyard/parallel/collectives/plan/rank_reduction.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int64_t kRun = optim::Optimizer::PartSteps::kMostElements;
constexpr int64_t kElementsPerThread = 32768;  // at least: less is not worth waking a thread
// Values of more bytes than this do not stay in the caches until they are read again.
constexpr int64_t kStreamedBytes = int64_t{32} << 20;

std::vector<void*> blocks_of(const std::vector<at::Tensor>& views) {
  std::vector<void*> blocks;
  for (const at::Tensor& view : views) blocks.push_back(view.mutable_data_ptr());
  return blocks;
}

// Copies without reading `to` into the caches first. Both are at multiples of 64 bytes.
void stream(void* to, const void* from, size_t bytes) {
  size_t done = 0;
#if defined(__AVX2__)
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  constexpr size_t kVector = sizeof(__m256i);
  for (; done + 2 * kVector <= bytes; done += 2 * kVector) {
    const __m256i first = _mm256_load_si256(reinterpret_cast<const __m256i*>(source + done));
    const __m256i second = _mm256_load_si256(reinterpret_cast<const __m256i*>(source + done + kVector));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target + done), first);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target + done + kVector), second);
  }
  _mm_sfence();
#endif
  std::memcpy(static_cast<std::byte*>(to) + done, static_cast<const std::byte*>(from) + done, bytes - done);
}

// Returns memory for a thread's reduced gradients of one run.
void* scratch() {
  struct alignas(64) Scratch {
    std::byte bytes[static_cast<size_t>(kRun) * sizeof(double)];
  };
  thread_local const auto memory = std::make_unique<Scratch>();
  return memory->bytes;
}

// Collective: returns the obstacle of this rank, or the first other rank that has one; empty on all when none has.
std::string agreed_obstacle(core::Communicator& communicator, const std::string& own) {
  const at::Tensor flag = at::tensor({own.empty() ? 0 : 1}, at::kInt);
  const std::vector<at::Tensor> all = communicator.all_gather(flag);
  if (!own.empty()) return own;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].item<int>() != 0) return fmt::format("rank {} cannot", rank);
  }
  return "";
}

bool same_sizes(const std::vector<at::Tensor>& views, int64_t elements) {
  return std::all_of(views.begin(), views.end(), [&](const at::Tensor& view) { return view.numel() == elements; });
}

}  // namespace

ShardedUpdate::ShardedUpdate(core::Communicator& communicator, nn::ParameterSet& set, optim::Optimizer& optimizer,
                             Options options)
    : communicator_(communicator),
      set_(set),
      optimizer_(optimizer),
      options_(std::move(options)),
      type_(set.values().scalar_type()),
      width_(c10::elementSize(type_)),
      value_views_(communicator.peer_views(set.values())),
      gradient_views_(communicator.peer_views(set.gradients())),
      values_(blocks_of(value_views_)),
      gradients_(blocks_of(gradient_views_)),
      streams_(set.total() * static_cast<int64_t>(width_) > kStreamedBytes),
      flag_(communicator.new_exchanged(1, at::kInt)) {
  if (!flag_.defined()) flag_ = at::zeros({1}, at::kInt);
  const auto boundary = [&](int rank) {
    return rank == 0 ? 0 : optimizer.part_boundary(set.total() * rank / communicator.size());
  };
  part_ = {.begin = boundary(communicator.rank()), .end = boundary(communicator.rank() + 1)};
}

ShardedUpdate::Made ShardedUpdate::make(core::Communicator& communicator, nn::ParameterSet& set,
                                        optim::Optimizer& optimizer, const Options& options) {
  const std::string own = options.obstacle.empty() ? optimizer.part_obstacle() : options.obstacle;
  if (std::string obstacle = agreed_obstacle(communicator, own); !obstacle.empty()) {
    return {.obstacle = std::move(obstacle)};
  }
  std::unique_ptr<ShardedUpdate> update(new ShardedUpdate(communicator, set, optimizer, options));
  if (update->values_.empty() || update->gradients_.empty()) {
    return {.obstacle = "ranks do not share memory, or an algorithm of their all-reduces was chosen"};
  }
  if (!same_sizes(update->value_views_, set.total())) return {.obstacle = "ranks have declared different variables"};
  optimizer.keep_part(update->part_, [&communicator](int64_t elements, at::ScalarType type) {
    return communicator.new_exchanged(elements, type);
  });
  if (!update->share_slots()) {
    throw Error(ErrorCode::kNoSpace, {.problem = "an optimizer's slots find no memory that other ranks can read",
                                      .where = fmt::format("rank {}", communicator.rank()),
                                      .remedy = "let each rank update all parameters: --sharded_update=false"});
  }
  return {.update = std::move(update)};
}

bool ShardedUpdate::share_slots() {
  std::vector<std::vector<at::Tensor>> slots;
  for (const optim::Optimizer::Slot& slot : optimizer_.slots()) {
    slots.push_back(communicator_.peer_views(slot.values));
    if (slots.back().empty()) return false;
  }
  optimizer_.share_slots(std::move(slots));
  return true;
}

void* ShardedUpdate::own_gradients(int64_t begin) const {
  return static_cast<std::byte*>(gradients_[static_cast<size_t>(communicator_.rank())]) +
         static_cast<size_t>(begin) * width_;
}

bool ShardedUpdate::reduce_run(int64_t begin, int64_t count, void* result) const {
  reduce_to(type_, options_.op, gradients_, begin, begin + count, result);
  return type_ == at::kDouble ? optim::all_finite(static_cast<const double*>(result), count)
                              : optim::all_finite(static_cast<const float*>(result), count);
}

void ShardedUpdate::publish(const std::vector<void*>& blocks, int64_t begin, int64_t count) const {
  const auto own = static_cast<size_t>(communicator_.rank());
  const size_t offset = static_cast<size_t>(begin) * width_, bytes = static_cast<size_t>(count) * width_;
  for (size_t rank = 0; rank < blocks.size(); ++rank) {
    if (rank == own) continue;
    void* const to = static_cast<std::byte*>(blocks[rank]) + offset;
    const void* const from = static_cast<const std::byte*>(blocks[own]) + offset;
    if (streams_) {
      stream(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }
}

void ShardedUpdate::agree(bool finite) {
  flag_.mutable_data_ptr<int32_t>()[0] = finite ? 0 : 1;
  communicator_.all_reduce(flag_, core::ReduceOp::kMax);
  finite_ = flag_.const_data_ptr<int32_t>()[0] == 0;
}

void ShardedUpdate::reduce() {
  if (!options_.decides_before_update) return;
  agree(true);  // the gradients of all ranks are complete
  std::atomic<bool> finite = true;
  at::parallel_for(part_.begin, part_.end, kElementsPerThread, [&](int64_t first, int64_t last) {
    for (int64_t begin = first; begin < last; begin += kRun) {
      const int64_t count = std::min(kRun, last - begin);
      if (!reduce_run(begin, count, own_gradients(begin))) finite.store(false, std::memory_order_relaxed);
    }
  });
  agree(finite.load());
  if (finite_) return;
  publish(gradients_, part_.begin, part_.end - part_.begin);
  agree(false);
}

double ShardedUpdate::update(const optim::StepState& state) {
  double waited = 0;
  const auto meet = [&waited](const auto& meeting) {
    const auto begin = std::chrono::steady_clock::now();
    meeting();
    waited += core::seconds_since(begin);
  };
  // No rank reads its values, or writes its gradients, any more.
  const bool before = finite_;
  meet([&] { agree(true); });
  std::atomic<bool> finite = true;
  optimizer_.update_part(state, {.gradients =
                                     [&](int64_t begin, int64_t count) {
                                       if (options_.decides_before_update) return own_gradients(begin);
                                       void* const reduced = scratch();
                                       if (!reduce_run(begin, count, reduced)) finite = false;
                                       return reduced;
                                     },
                                 .updated = [&](int64_t begin, int64_t count) { publish(values_, begin, count); }});
  meet([&] { agree(options_.decides_before_update ? before : finite.load()); });
  optimizer_.finish_update();
  return waited;
}

}  // namespace trainyard::parallel
