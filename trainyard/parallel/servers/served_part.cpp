#include "trainyard/parallel/servers/served_part.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/plan/rank_reduction.h"
#include "trainyard/parallel/servers/optimizer_settings.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int64_t kRunElements = optim::Optimizer::PartSteps::kMostElements;
constexpr int64_t kServedElementsPerThread = 32768;

// Returns memory for a thread's reduced gradients of one run.
void* reduced_run() {
  struct alignas(64) Scratch {
    std::byte bytes[static_cast<size_t>(kRunElements) * sizeof(double)];
  };
  thread_local const auto memory = std::make_unique<Scratch>();
  return memory->bytes;
}

Error other_count(const char* problem, size_t expected, size_t actual) {
  return {ErrorCode::kInvalidArgument,
          {.problem = problem,
           .expected = std::to_string(expected),
           .actual = std::to_string(actual),
           .remedy = "pass the same flags to servers and workers"}};
}

}  // namespace

LazyBlock::LazyBlock(size_t bytes)
    : bytes_(std::max<size_t>(bytes, 1)),
      data_(static_cast<std::byte*>(
          ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (data_ != MAP_FAILED) return;
  throw Error(ErrorCode::kNoSpace, {.problem = "a parameter server finds no memory",
                                    .actual = fmt::format("{} bytes are refused", bytes),
                                    .remedy = "use more servers, or a machine with more memory"});
}

LazyBlock::~LazyBlock() {
  ::munmap(data_, bytes_);
}

std::vector<wire::Tensor> tensors_of(const nn::ParameterSet& set) {
  std::vector<wire::Tensor> tensors(set.size());
  for (const nn::Segment& segment : set.segments()) {
    tensors.at(static_cast<size_t>(segment.id.index)) = {
        .name = segment.spec.name, .shape = segment.spec.shape, .decay = segment.spec.decay};
  }
  return tensors;
}

std::vector<at::Tensor> counts_in(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> counts;
  for (const at::Tensor& count : {optimizer.update_count(), optimizer.lookahead_count()}) {
    if (count.defined()) counts.push_back(count);
  }
  return counts;
}

ServedPart::ServedPart(const wire::RegisterRequest& registered, const ParameterServerOptions& options,
                       const MakeOptimizers& make_optimizers)
    : tensors_(registered.tensors),
      staged_(options.cluster.mode == ServerMode::kStaged),
      op_(options.cluster.reduction == ServerReduction::kMean ? core::ReduceOp::kMean : core::ReduceOp::kSum),
      type_(registered.is_double ? at::kDouble : at::kFloat),
      variables_as_(options.cluster.variables_as),
      width_(registered.is_double ? sizeof(double) : sizeof(float)),
      set_({.dtype = type_}) {
  const ClusterOptions& cluster = options.cluster;
  if (registered.optimizers != make_optimizers.size()) {
    throw other_count("a worker has another number of optimizers", make_optimizers.size(), registered.optimizers);
  }
  uint64_t bytes = 0;
  for (const wire::Tensor& tensor : tensors_) bytes += wire::element_count(tensor) * width_;
  if (tensors_.empty() || bytes > static_cast<uint64_t>(options.most_bytes)) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "a worker registers a model that a parameter server cannot hold",
                 .expected = fmt::format("1 to {} bytes of values", options.most_bytes),
                 .actual = fmt::format("{} tensors of {} bytes", tensors_.size(), bytes)});
  }
  declare(registered);
  for (const auto& make : make_optimizers) {
    optimizers_.push_back(make(set_));
    optimizers_.back()->count_updates_together();  // a worker saves the counts, and reads one for all parameters
    settings_ += optimizer_settings(*optimizers_.back());
  }
  if (staged_ && optimizers_.size() != 1) {
    throw Error(ErrorCode::kUnsupported, {.problem = "staged variables are not built for several optimizers yet"});
  }
  const double replicas = cluster.mode == ServerMode::kAsynchronous
                              ? cluster.replicas_per_worker
                              : static_cast<double>(cluster.replicas_per_worker) * cluster.workers;
  for (const auto& optimizer : optimizers_) {
    const auto& clip = optimizer->options().norm_clip;
    if (clip && clip->kind == optim::NormClipKind::kGlobal && cluster.servers > 1) {
      throw Error(ErrorCode::kUnsupported,
                  {.problem = "gradients that several servers hold cannot be clipped by their global norm",
                   .actual = fmt::format("{} parameter servers", cluster.servers),
                   .remedy = "use one parameter server, or leave the clipping out"});
    }
    if (op_ == core::ReduceOp::kSum) optimizer->set_weight_decay_factor(replicas);
  }
  cut_ = cuts_tensors();
  begin_ = boundary(options.server, cluster.servers);
  end_ = boundary(options.server + 1, cluster.servers);
  const auto part_bytes = static_cast<size_t>(end_ - begin_) * width_;
  if (cut_) {
    optimizers_[0]->keep_part({.begin = begin_, .end = end_}, [](int64_t, at::ScalarType) { return at::Tensor(); });
  } else {
    apply_frozen();
  }
  for (int w = 0; w < cluster.workers; ++w) blocks_.push_back(std::make_unique<LazyBlock>(part_bytes));
  if (staged_) {
    previous_ = std::make_unique<LazyBlock>(part_bytes);
    scratch_ = std::make_unique<LazyBlock>(part_bytes);
  }
}

void ServedPart::declare(const wire::RegisterRequest& registered) {
  for (const wire::Tensor& tensor : registered.tensors) {
    set_.declare({.name = tensor.name, .shape = tensor.shape, .decay = tensor.decay});
  }
  const auto lazy = [](int64_t elements, at::ScalarType type) {
    auto block = std::make_shared<LazyBlock>(static_cast<size_t>(elements) * c10::elementSize(type));
    void* const data = block->data();
    return at::from_blob(
        data, {elements}, [block = std::move(block)](void*) mutable { block.reset(); }, at::TensorOptions(type));
  };
  set_.place_values(lazy);
  set_.place_gradients(lazy);
  set_.allocate();
}

std::string ServedPart::difference(const wire::RegisterRequest& other) const {
  if (other.is_double != (type_ == at::kDouble)) return "the type of all tensors";
  for (size_t i = 0; i < std::max(tensors_.size(), other.tensors.size()); ++i) {
    if (i >= tensors_.size()) return other.tensors[i].name;
    if (i >= other.tensors.size() || other.tensors[i] != tensors_[i]) return tensors_[i].name;
  }
  return "";
}

bool ServedPart::cuts_tensors() const {
  return !staged_ && optimizers_.size() == 1 && optimizers_[0]->part_obstacle().empty();
}

int64_t ServedPart::boundary(int server, int servers) const {
  if (server == 0) return 0;
  if (server == servers) return set_.total();
  const int64_t wanted = set_.total() * server / servers;
  if (cut_) return optimizers_[0]->part_boundary(wanted);
  int64_t nearest = set_.total();
  for (const nn::Segment& segment : set_.segments()) {
    if (std::abs(segment.offset - wanted) < std::abs(nearest - wanted)) nearest = segment.offset;
  }
  return nearest;
}

std::vector<uint64_t> ServedPart::slots() const {
  std::vector<uint64_t> counts;
  for (const auto& optimizer : optimizers_) counts.push_back(optimizer->slots().size());
  return counts;
}

std::vector<std::string> ServedPart::hyperparameter_names(uint64_t optimizer) const {
  return optimizers_.at(optimizer)->hyperparameter_names();
}

std::byte* ServedPart::elements(uint64_t target, uint64_t begin) const {
  if (begin < static_cast<uint64_t>(begin_) || begin > static_cast<uint64_t>(end_)) return nullptr;
  const size_t whole = static_cast<size_t>(begin) * width_;
  const size_t within = whole - static_cast<size_t>(begin_) * width_;
  if (target == wire::kValues) return static_cast<std::byte*>(set_.values().mutable_data_ptr()) + whole;
  if (target == wire::kStagedValues) return staged_ ? previous_->data() + within : nullptr;
  uint64_t slot = target - wire::kFirstSlot;
  for (const auto& optimizer : optimizers_) {
    if (slot < optimizer->slots().size()) {
      auto* const first = static_cast<std::byte*>(optimizer->slots()[slot].values.mutable_data_ptr());
      return cut_ ? first + within : first + whole;
    }
    slot -= optimizer->slots().size();
  }
  return nullptr;
}

std::vector<double> ServedPart::counts() const {
  std::vector<double> all;
  for (const auto& optimizer : optimizers_) {
    for (const at::Tensor& count : counts_in(*optimizer)) {
      const auto* const numbers = count.const_data_ptr<double>();
      all.insert(all.end(), numbers, numbers + count.numel());
    }
  }
  return all;
}

void ServedPart::set_counts(const std::vector<double>& counts) {
  if (counts.size() != this->counts().size()) {
    throw other_count("a worker has other counts of updates", this->counts().size(), counts.size());
  }
  auto next = counts.begin();
  for (const auto& optimizer : optimizers_) {
    for (const at::Tensor& count : counts_in(*optimizer)) {
      std::copy_n(next, count.numel(), count.mutable_data_ptr<double>());
      next += count.numel();
    }
  }
}

void ServedPart::check(const wire::ApplyRequest& request) const {
  if (request.optimizer >= optimizers_.size()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a push names an optimizer that there is not",
                                              .expected = fmt::format("below {}", optimizers_.size()),
                                              .actual = std::to_string(request.optimizer)});
  }
  const size_t names = optimizers_[request.optimizer]->hyperparameter_names().size();
  if (request.hyperparameters.size() != names) {
    throw other_count("a push has another number of hyperparameters", names, request.hyperparameters.size());
  }
  for (const double number : request.hyperparameters) {
    if (!std::isfinite(number)) throw Error(ErrorCode::kInvalidArgument, "a hyperparameter of a push is not finite");
  }
  for (const uint64_t index : request.frozen) {
    if (index < tensors_.size()) continue;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a push freezes a parameter that there is not",
                                              .expected = fmt::format("below {}", tensors_.size()),
                                              .actual = std::to_string(index)});
  }
}

void ServedPart::follow(const wire::ApplyRequest& request) {
  optim::Optimizer& optimizer = *optimizers_[request.optimizer];
  const std::vector<std::string> names = optimizer.hyperparameter_names();
  for (size_t i = 0; i < names.size(); ++i) {
    if (optimizer.hyperparameter(names[i]) != request.hyperparameters[i]) {
      optimizer.set_hyperparameter(names[i], request.hyperparameters[i]);
    }
  }
  if (request.frozen == frozen_) return;
  frozen_ = request.frozen;
  apply_frozen();
}

void ServedPart::apply_frozen() {
  std::vector<bool> trains(tensors_.size(), true);
  for (const uint64_t index : frozen_) trains[index] = false;
  for (const nn::Segment& segment : set_.segments()) {
    const bool own = cut_ || (segment.offset >= begin_ && segment.offset < end_);
    set_.set_trainable(segment.id, own && trains[static_cast<size_t>(segment.id.index)]);
  }
}

void ServedPart::update(const std::vector<size_t>& workers, const wire::ApplyRequest& settings, bool found_inf,
                        const wire::ApplyRequest* followed) {
  if (followed != nullptr) follow(*followed);
  state_.write({.learning_rate = settings.learning_rate,
                .inverse_loss_scale = settings.inverse_loss_scale,
                .step = settings.step,
                .found_inf = found_inf});
  std::vector<void*> buffers;
  for (const size_t worker : workers) buffers.push_back(blocks_[worker]->data());
  optim::Optimizer& optimizer = *optimizers_[settings.optimizer];
  if (cut_) {
    update_elements(optimizer, buffers);
  } else {
    update_tensors(optimizer, buffers, found_inf);
  }
  round_variables();
}

void ServedPart::round_variables() {
  if (!variables_as_) return;
  const auto round = [this](const at::Tensor& numbers) { numbers.copy_(numbers.to(*variables_as_)); };
  const int64_t count = end_ - begin_;
  round(set_.values().narrow(0, begin_, count));
  for (const auto& optimizer : optimizers_) {
    for (const optim::Optimizer::Slot& slot : optimizer->slots()) {
      round(cut_ ? slot.values : slot.values.narrow(0, begin_, count));
    }
  }
}

void ServedPart::update_elements(optim::Optimizer& optimizer, const std::vector<void*>& buffers) {
  optimizer.update_part(state_, {.gradients = [&](int64_t begin, int64_t count) -> void* {
                                   const int64_t first = begin - begin_;
                                   if (buffers.size() == 1) {
                                     return static_cast<std::byte*>(buffers[0]) + static_cast<size_t>(first) * width_;
                                   }
                                   void* const reduced = reduced_run();
                                   reduce_to(type_, op_, buffers, first, first + count, reduced);
                                   return reduced;
                                 },
                                 .updated = [](int64_t, int64_t) {}});
  optimizer.finish_update();
}

void ServedPart::update_tensors(optim::Optimizer& optimizer, const std::vector<void*>& buffers, bool found_inf) {
  auto* const gradients = static_cast<std::byte*>(set_.gradients().mutable_data_ptr());
  at::parallel_for(0, end_ - begin_, kServedElementsPerThread, [&](int64_t first, int64_t last) {
    reduce_to(type_, op_, buffers, first, last, gradients + static_cast<size_t>(begin_ + first) * width_);
  });
  if (!staged_) return optimizer.apply(state_);
  const auto bytes = static_cast<size_t>(end_ - begin_) * width_;
  std::byte* const values = elements(wire::kValues, static_cast<uint64_t>(begin_));
  std::memcpy(scratch_->data(), values, bytes);
  if (!found_inf) {
    // The regularization is a part of the gradient at the values that the workers read.
    std::memcpy(values, previous_->data(), bytes);
    if (!optimizer.gradients_complete()) optimizer.complete_gradients(state_);
    std::memcpy(values, scratch_->data(), bytes);
  }
  optimizer.apply(state_);
  std::swap(previous_, scratch_);
}

void ServedPart::start() {
  round_variables();
  if (staged_ && !staged_written_) {
    std::memcpy(previous_->data(), elements(wire::kValues, static_cast<uint64_t>(begin_)),
                static_cast<size_t>(end_ - begin_) * width_);
  }
  staged_written_ = false;
}

}  // namespace trainyard::parallel
