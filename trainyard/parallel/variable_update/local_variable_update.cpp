#include "trainyard/parallel/variable_update/local_variable_update.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/servers/optimizer_settings.h"
#include "trainyard/parallel/variable_update/gradient_packing.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr const char* kCompression = "compression/";
constexpr int64_t kGatheredElements = int64_t{4} << 20;  // at a time

// A training that continued without the masks of its checkpoint would lose their zeros.
void require_masks_on_host(const nn::ParameterSet& parameters, const core::StateReader& reader) {
  if (parameters.values().is_cpu()) return;
  for (const std::string& name : reader.names("model/")) {
    if (!name.ends_with(".mask")) continue;
    throw Error(ErrorCode::kUnsupported, {.problem = "the masks of a pruned model do not work on a device yet",
                                          .where = name,
                                          .expected = "parameters in the host's memory",
                                          .actual = parameters.values().device().str(),
                                          .remedy = "train it on the CPU: --device=cpu"});
  }
}

}  // namespace

LocalVariableUpdate::LocalVariableUpdate(VariableUpdateOptions options, GradientReduction reduction, Exchange exchange)
    : options_(std::move(options)), reduction_(options_.reduction.value_or(reduction)), exchange_(exchange) {
  options_.validate();
  for (int r = 0; r < options_.replicas; ++r) {
    nn::ParameterSetOptions parameters = options_.parameters;
    if (!one_memory()) parameters.device = options_.accelerators[static_cast<size_t>(r)]->device();
    replicas_.push_back(std::make_unique<Replica>(Replica{.parameters = nn::ParameterSet(parameters)}));
  }
  if (exchange == Exchange::kProcesses || (exchange == Exchange::kGradients && replicas() > 1)) make_communicators();
  if (!options_.compression.is_default() && at(0).communicator == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "gradients that are not exchanged cannot be compressed",
                 .expected = "replicas, or processes, that exchange gradients in each step",
                 .actual = fmt::format("{} replica{} without an exchange", replicas(), replicas() == 1 ? "" : "s"),
                 .remedy = "leave the compression out, or use replicated, horovod or collective_all_reduce"});
  }
}

void LocalVariableUpdate::make_communicators() {
  auto communicators =
      options_.make_communicators ? options_.make_communicators() : make_thread_communicators(options_.replicas);
  if (communicators.size() != replicas_.size()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "each replica needs a communicator",
                                              .expected = std::to_string(replicas_.size()),
                                              .actual = std::to_string(communicators.size())});
  }
  for (int r = 0; r < replicas(); ++r) {
    at(r).communicator = std::move(communicators[static_cast<size_t>(r)]);
    at(r).communicator->set_deadline(options_.deadline);
    at(r).on_device = dynamic_cast<DeviceCommunicator*>(at(r).communicator.get());
    if (!options_.compression.is_default()) continue;  // the gradients themselves are not exchanged
    at(r).parameters.place_gradients([exchange = at(r).communicator.get()](int64_t elements, at::ScalarType dtype) {
      return exchange->new_exchanged(elements, dtype);
    });
  }
}

nn::AcceleratorScope LocalVariableUpdate::use(int replica) const {
  return one_memory() ? nn::AcceleratorScope() : options_.accelerators[static_cast<size_t>(replica)]->use();
}

int64_t LocalVariableUpdate::slot_bytes(const optim::Optimizer& optimizer) {
  int64_t bytes = 0;
  for (const optim::Optimizer::Slot& slot : optimizer.slots()) bytes += static_cast<int64_t>(slot.values.nbytes());
  return bytes;
}

LocalVariableUpdate::Optimizers LocalVariableUpdate::make_optimizers(nn::ParameterSet& set) const {
  Optimizers all;
  std::vector<bool> owned(set.segments().size());
  for (const auto& make : options_.make_optimizers) {
    all.push_back(make(set));
    for (size_t i = 0; i < owned.size(); ++i) {
      if (!all.back()->owns(i)) continue;
      if (owned[i]) {
        throw Error(ErrorCode::kInvalidArgument, {.problem = "two optimizers update one parameter",
                                                  .where = set.segments()[i].spec.name,
                                                  .remedy = "give each the patterns of its own parameters"});
      }
      owned[i] = true;
    }
  }
  return all;
}

optim::Optimizer* LocalVariableUpdate::optimizer(int replica, int index) const {
  const Optimizers& all = at(replica).optimizers;
  return all.empty() ? nullptr : all.at(static_cast<size_t>(index)).get();
}

void LocalVariableUpdate::update(int replica, const optim::StepState& state, int optimizer) {
  if (ShardedUpdate* const own = at(replica).sharded.get()) {
    at(replica).communication_seconds += own->update(state);
    return;
  }
  at(replica).optimizers.at(static_cast<size_t>(optimizer))->apply(state);
}

int64_t LocalVariableUpdate::optimizer_bytes() const {
  int64_t bytes = 0;
  for (const auto& replica : replicas_) {
    for (const auto& optimizer : replica->optimizers) bytes += slot_bytes(*optimizer);
    if (replica->compressor) bytes += replica->compressor->memory_bytes();
  }
  return bytes;
}

std::unique_ptr<GradientBuckets> LocalVariableUpdate::make_buckets(const nn::ParameterSet& set,
                                                                   core::Communicator& communicator,
                                                                   core::ReduceOp op) const {
  if (options_.packing.is_default()) {
    return std::make_unique<GradientBuckets>(set, communicator, op, options_.bucket_bytes);
  }
  return std::make_unique<GradientBuckets>(set, communicator, op, pack_gradients(set, options_.packing));
}

void LocalVariableUpdate::allocate_from(nn::ParameterSet& first, nn::ParameterSet& set) {
  set.allocate();
  set.copy_from(first);
}

void LocalVariableUpdate::allocate() {
  const nn::AcceleratorScope on_devices = nn::use_all(options_.accelerators);
  nn::ParameterSet& first = parameters(0);
  for (int r = 0; tries_sharding() && r < replicas(); ++r) {
    parameters(r).place_values([exchange = at(r).communicator.get()](int64_t elements, at::ScalarType dtype) {
      return exchange->new_exchanged(elements, dtype);
    });
  }
  first.allocate();
  first.initialize(options_.seed);
  if (options_.start) options_.start(first);
  for (int r = 1; r < replicas(); ++r) {
    if (parameters(r).size() != first.size() || parameters(r).buffer_count() != first.buffer_count()) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "replicas have declared different variables",
                   .where = fmt::format("replica {}", r),
                   .expected = fmt::format("{} parameters and {} buffers", first.size(), first.buffer_count()),
                   .actual = fmt::format("{} and {}", parameters(r).size(), parameters(r).buffer_count())});
    }
    const nn::AcceleratorScope on_device = use(r);
    allocate_from(first, parameters(r));
  }
  const bool summed = reduction_ == GradientReduction::kSum && at(0).communicator;
  const core::ReduceOp op = summed ? core::ReduceOp::kSum : core::ReduceOp::kMean;
  for (int r = 0; r < replicas(); ++r) {
    if (at(r).communicator) {
      if (options_.compression.is_default()) {
        at(r).buckets = make_buckets(parameters(r), *at(r).communicator, op);
      } else {
        at(r).compressor = make_gradient_compressor(parameters(r), *at(r).communicator, op, options_.compression);
        if (at(r).communicator->rank() == 0) {
          core::log::info("gradients are compressed: {}",
                          compression_text(options_.compression, at(r).compressor->bytes_of_step()));
        }
      }
    }
    if (!has_own_optimizers(r)) continue;
    const nn::AcceleratorScope on_device = use(r);
    at(r).optimizers = make_optimizers(parameters(r));
    for (const auto& optimizer : at(r).optimizers) {
      if (summed) optimizer->set_weight_decay_factor(at(r).communicator->size());
    }
  }
  if (exchange_ == Exchange::kProcesses) {
    on_every_replica(
        [this](int replica, core::Communicator& communicator) { require_same_optimizers(replica, communicator); });
  }
  shard_updates(op);
}

// Copies that ranks update by different formulas, or with a different momentum, would drift apart unnoticed.
void LocalVariableUpdate::require_same_optimizers(int replica, core::Communicator& communicator) {
  const at::Device device = parameters(replica).values().device();
  std::string own;
  for (const auto& optimizer : at(replica).optimizers) own += all_optimizer_settings(*optimizer);
  const at::Tensor facts =
      at::tensor({static_cast<int64_t>(core::stable_hash(own)), static_cast<int64_t>(own.size())}, at::kLong);
  const std::vector<at::Tensor> all = communicator.all_gather(facts.to(device));
  wait();
  const auto text_of = [&](size_t rank) {
    at::Tensor text = at::empty({all[rank][1].item<int64_t>()}, at::kByte);
    const bool sends = static_cast<int>(rank) == communicator.rank();
    if (sends) std::copy(own.begin(), own.end(), text.mutable_data_ptr<uint8_t>());
    const at::Tensor there = text.to(device);
    communicator.broadcast(there, static_cast<int>(rank));
    wait();
    const at::Tensor here = there.to(at::kCPU);
    const auto* const bytes = here.const_data_ptr<uint8_t>();
    return std::string(bytes, bytes + here.numel());
  };
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].equal(all[0])) continue;
    const std::string first = text_of(0);
    require_same_settings(first, text_of(rank), fmt::format("rank {}", rank), "ranks have different optimizers");
  }
}

bool LocalVariableUpdate::tries_sharding() const {
  const Sharding::Use use = options_.sharding.use;
  // Meetings would cost more than the update of few parameters. Known once they are allocated.
  const at::Tensor values = replica_parameters(0).values();
  if (use == Sharding::Use::kAuto && values.defined() &&
      static_cast<int64_t>(values.nbytes()) < Sharding::kLeastBytes) {
    return false;
  }
  return use != Sharding::Use::kNever && can_shard() && one_memory() && at(0).communicator &&
         at(0).communicator->size() > 1 && options_.compression.is_default();
}

void LocalVariableUpdate::shard_updates(core::ReduceOp op) {
  const Sharding& sharding = options_.sharding;
  std::string obstacle;
  if (tries_sharding()) {
    ShardedUpdate::Options options{
        .op = op, .decides_before_update = sharding.decides_before_update, .obstacle = sharding.obstacle};
    if (!options_.packing.is_default()) options.obstacle = "gradients are joined into packs";
    if (options_.make_optimizers.size() > 1) options.obstacle = "several optimizers take turns";
    std::vector<ShardedUpdate::Made> made(replicas_.size());
    on_every_replica([&](int r, core::Communicator& communicator) {
      made[static_cast<size_t>(r)] = ShardedUpdate::make(communicator, parameters(r), *at(r).optimizers[0], options);
    });
    obstacle = made[0].obstacle;
    for (int r = 0; obstacle.empty() && r < replicas(); ++r) {
      at(r).sharded = std::move(made[static_cast<size_t>(r)].update);
      at(r).buckets.reset();
    }
  } else if (!can_shard()) {
    obstacle = "replicas have no copies of the parameters that each updates";
  } else if (!one_memory()) {
    obstacle = "parameters are on devices";
  } else if (!options_.compression.is_default()) {
    obstacle = "gradients are compressed";
  }
  if (sharding.use == Sharding::Use::kAlways && !obstacle.empty()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "the update of parameters cannot be divided among the ranks",
                                          .where = "--sharded_update=true",
                                          .actual = obstacle,
                                          .remedy = "leave it to --sharded_update=auto"});
  }
  if (!tries_sharding() || at(0).communicator->rank() != 0) return;
  if (obstacle.empty()) {
    core::log::info("each of {} ranks updates its part of the parameters, and keeps the optimizer's state of that part",
                    at(0).communicator->size());
  } else {
    core::log::info("each rank updates all parameters: {}", obstacle);
  }
}

std::optional<bool> LocalVariableUpdate::gradients_finite(int replica) const {
  const ShardedUpdate* const own = at(replica).sharded.get();
  return own == nullptr ? std::nullopt : std::optional(own->finite());
}

template <typename Operation>
void LocalVariableUpdate::communicate(int replica, Operation operation) {
  core::Communicator* communicator = at(replica).communicator.get();
  if (communicator == nullptr) return;
  const auto start = std::chrono::steady_clock::now();
  operation(*communicator);
  add_communication(replica, start);
}

void LocalVariableUpdate::add_communication(int replica, std::chrono::steady_clock::time_point start) {
  at(replica).communication_seconds += core::seconds_since(start);
}

void LocalVariableUpdate::add_waiting(int replica, std::chrono::steady_clock::time_point start) {
  const double seconds = core::seconds_since(start);
  at(replica).communication_seconds += seconds;
  at(replica).waited_outside += seconds;
}

double LocalVariableUpdate::waiting_seconds(int replica) const {
  const Replica& own = at(replica);
  return own.waited_outside + (own.communicator == nullptr ? 0 : own.communicator->waiting_seconds());
}

void LocalVariableUpdate::all_reduce_gradients(int replica) {
  if (replica == 0) gathered_.clear();
  communicate(replica, [&](core::Communicator&) {
    Replica& own = at(replica);
    own.compressor ? own.compressor->reduce() : own.sharded ? own.sharded->reduce() : own.buckets->reduce();
  });
}

void LocalVariableUpdate::set_gradient_scale(int replica, double scale) {
  if (at(replica).compressor) at(replica).compressor->set_gradient_scale(scale);
}

void LocalVariableUpdate::ready(int replica, nn::ParameterId parameter) {
  if (at(replica).buckets) at(replica).buckets->ready(parameter);
}

void LocalVariableUpdate::wait_for_all(int replica) {
  communicate(replica, [](core::Communicator& communicator) { communicator.barrier(); });
}

void LocalVariableUpdate::broadcast_values(int replica) {
  communicate(replica,
              [&](core::Communicator& communicator) { communicator.broadcast(parameters(replica).values(), 0); });
  if (replica != 0) parameters(replica).values_changed();
}

void LocalVariableUpdate::on_every_replica(const std::function<void(int, core::Communicator&)>& operation) {
  const auto run = [&](int replica) {
    const nn::AcceleratorScope on_device = use(replica);
    communicate(replica, [&](core::Communicator& communicator) { operation(replica, communicator); });
  };
  std::vector<core::Thread> others;
  for (int r = 1; r < replicas(); ++r) {
    others.emplace_back(core::ThreadOptions{.name = "replica start"}, [&run, r] { run(r); });
  }
  std::exception_ptr failure;
  const auto keep_first = [&failure](const std::function<void()>& work) {
    try {
      work();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  keep_first([&run] { run(0); });
  for (core::Thread& other : others) keep_first([&other] { other.join(); });
  if (failure) std::rethrow_exception(failure);
}

void LocalVariableUpdate::start_as_rank_0() {
  on_every_replica([this](int replica, core::Communicator& communicator) { start_as_rank_0(replica, communicator); });
}

void LocalVariableUpdate::start_as_rank_0(int replica, core::Communicator& communicator) {
  nn::ParameterSet& own = parameters(replica);
  const auto declared = [](const at::Tensor& counts) {
    return fmt::format("{} parameters of {} elements, {} buffers", counts[0].item<int64_t>(), counts[1].item<int64_t>(),
                       counts[2].item<int64_t>());
  };
  int64_t elements = 0;
  for (const nn::Segment& segment : own.segments()) elements += segment.count;
  const at::Tensor counts =
      at::tensor({static_cast<int64_t>(own.size()), elements, static_cast<int64_t>(own.buffer_count())}, at::kLong);
  const std::vector<at::Tensor> all = communicator.all_gather(counts.to(own.values().device()));
  wait();
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].equal(all[0])) continue;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "ranks have declared different variables",
                                              .where = fmt::format("rank {}", rank),
                                              .expected = declared(all[0]) + " as on rank 0",
                                              .actual = declared(all[rank]),
                                              .remedy = "pass the same flags to all processes"});
  }
  communicator.broadcast(own.values(), 0);
  for (size_t b = 0; b < own.buffer_count(); ++b) communicator.broadcast(own.buffer(static_cast<int>(b)), 0);
  wait();
  if (own.values().is_cpu()) broadcast_masks(communicator, own);
  own.values_changed();
}

void LocalVariableUpdate::broadcast_masks(core::Communicator& communicator, nn::ParameterSet& set) {
  at::Tensor masked = at::zeros({static_cast<int64_t>(set.size())}, at::kByte);
  auto* const has_mask = masked.mutable_data_ptr<uint8_t>();
  for (int index = 0; index < static_cast<int>(set.size()); ++index) {
    has_mask[index] = set.mask({index}).defined() ? 1 : 0;
  }
  communicator.broadcast(masked, 0);
  for (int index = 0; index < static_cast<int>(set.size()); ++index) {
    at::Tensor kept;
    if (has_mask[index] != 0) {
      const at::Tensor own = set.mask({index});
      kept = own.defined() ? own.to(at::kByte) : at::zeros(set.segment({index}).spec.shape, at::kByte);
      communicator.broadcast(kept, 0);
    }
    set.set_mask({index}, kept);
  }
}

void LocalVariableUpdate::change_values(const std::function<void(nn::ParameterSet&)>& change) {
  const void* const first = parameters(0).values().const_data_ptr();
  for (int r = 0; r < replicas(); ++r) {
    const nn::AcceleratorScope on_device = use(r);
    nn::ParameterSet& set = parameters(r);
    if (r > 0 && set.values().const_data_ptr() == first) continue;
    change(set);
    set.values_changed();
  }
}

void LocalVariableUpdate::broadcast() {
  if (exchange_ == Exchange::kProcesses) {
    start_as_rank_0();
    broadcast_slots();
    return;
  }
  const nn::ParameterSet& first = parameters(0);
  for (int r = 1; r < replicas(); ++r) {
    const nn::AcceleratorScope on_device = use(r);
    nn::ParameterSet& set = parameters(r);
    if (set.values().const_data_ptr() == first.values().const_data_ptr()) {  // then only statistics are its own
      for (int b = 0; b < static_cast<int>(set.buffer_count()); ++b) set.buffer(b).copy_(first.buffer(b));
      continue;
    }
    set.copy_from(first);
    for (size_t o = 0; o < at(r).optimizers.size(); ++o) {
      const optim::Optimizer &from = *at(0).optimizers[o], &to = *at(r).optimizers[o];
      for (size_t s = 0; !sharded() && s < to.slots().size(); ++s) to.slots()[s].values.copy_(from.slots()[s].values);
      if (to.update_count().defined()) to.update_count().copy_(from.update_count());
      if (to.missed_updates().defined()) to.missed_updates().copy_(from.missed_updates());
      if (to.lookahead_count().defined()) to.lookahead_count().copy_(from.lookahead_count());
    }
  }
}

void LocalVariableUpdate::broadcast_slots() {
  on_every_replica([this](int replica, core::Communicator& communicator) {
    for (const auto& optimizer : at(replica).optimizers) {
      // Ranks that update parts have no slots in common.
      for (const optim::Optimizer::Slot& slot : optimizer->slots()) {
        if (!sharded()) communicator.broadcast(slot.values, 0);
      }
      if (optimizer->update_count().defined()) communicator.broadcast(optimizer->update_count(), 0);
      if (optimizer->missed_updates().defined()) communicator.broadcast(optimizer->missed_updates(), 0);
      if (optimizer->lookahead_count().defined()) communicator.broadcast(optimizer->lookahead_count(), 0);
    }
    wait();
  });
}

bool LocalVariableUpdate::gathers_state() const {
  return exchange_ == Exchange::kProcesses && !options_.compression.is_default();
}

// Each rank broadcasts its own, a part at a time: the others have no use for it, and no memory.
void LocalVariableUpdate::gather_state() {
  if (!gathers_state()) return;
  gathered_.clear();
  on_every_replica([this](int replica, core::Communicator& communicator) {
    const at::Tensor& own = at(replica).compressor->error();
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < communicator.size(); ++rank) {
      const bool sends = rank == communicator.rank();
      const bool keeps = communicator.rank() == 0;
      if (keeps) all.push_back(sends ? own.clone() : at::empty(own.sizes(), own.options()));
      if (rank == 0) continue;
      for (int64_t begin = 0; begin < own.numel(); begin += kGatheredElements) {
        const int64_t count = std::min(kGatheredElements, own.numel() - begin);
        const at::Tensor& whole = sends ? own : keeps ? all.back() : at::Tensor();
        communicator.broadcast(whole.defined() ? whole.narrow(0, begin, count) : at::empty({count}, own.scalar_type()),
                               rank);
      }
    }
    if (communicator.rank() == 0) gathered_ = std::move(all);
  });
}

std::optional<GradientBytes> LocalVariableUpdate::gradient_bytes() const {
  if (at(0).compressor == nullptr) return std::nullopt;
  return at(0).compressor->bytes();
}

void LocalVariableUpdate::save_compression(core::StateWriter& writer) const {
  const GradientCompressor* const first = at(0).compressor.get();
  if (first == nullptr) return;
  core::ScopedWriter own(writer, kCompression);
  first->save(own);
  for (size_t rank = 0; rank < gathered_.size(); ++rank) {
    first->save_error(own, static_cast<int>(rank), gathered_[rank]);
  }
  if (exchange_ == Exchange::kProcesses) return;
  for (int r = 0; r < replicas(); ++r) first->save_error(own, r, at(r).compressor->error());
}

void LocalVariableUpdate::load_compression(const core::StateReader& reader) {
  const core::ScopedReader own(reader, kCompression);
  for (const auto& replica : replicas_) {
    if (replica->compressor) replica->compressor->load(own);
  }
  gathered_.clear();
  const bool reports = at(0).communicator == nullptr || at(0).communicator->rank() == 0;
  if (at(0).compressor == nullptr && reports && !own.names().empty()) {
    core::log::warning("what the checkpoint keeps of compressed gradients ends here: this run does not compress them");
  }
}

void LocalVariableUpdate::replayed(int replica) {
  if (at(replica).on_device != nullptr) at(replica).on_device->replayed();
}

void LocalVariableUpdate::check() {
  for (const auto& replica : replicas_) {
    if (replica->on_device != nullptr) replica->on_device->check();
  }
}

void LocalVariableUpdate::wait() {
  for (const auto& replica : replicas_) {
    if (replica->on_device != nullptr) replica->on_device->wait();
  }
}

void LocalVariableUpdate::abort(const Error& error) {
  if (at(0).communicator) at(0).communicator->abort(error);
}

void LocalVariableUpdate::save_replica(int replica, core::StateWriter& writer) const {
  const nn::AcceleratorScope on_device = use(replica);
  core::ScopedWriter model(writer, "model/"), optimizer(writer, "optimizer/");
  at(replica).parameters.save(model);
  for (const auto& each : at(replica).optimizers) each->save(optimizer);
}

void LocalVariableUpdate::load_replica(int replica, const core::StateReader& reader) {
  const nn::AcceleratorScope on_device = use(replica);
  require_masks_on_host(at(replica).parameters, reader);
  at(replica).parameters.load(core::ScopedReader(reader, "model/"));
  for (const auto& each : at(replica).optimizers) each->load(core::ScopedReader(reader, "optimizer/"));
}

void LocalVariableUpdate::save(core::StateWriter& writer) const {
  save_replica(0, writer);
  for (int r = 1; saves_every_replica() && r < replicas(); ++r) {
    core::ScopedWriter own(writer, fmt::format("replica/{}/", r));
    save_replica(r, own);
  }
  save_compression(writer);
}

void LocalVariableUpdate::load(const core::StateReader& reader) {
  for (int r = 0; r < replicas(); ++r) {
    const std::string own = fmt::format("replica/{}/", r);
    // A state of fewer replicas, or of another mode, has none for this one: it starts as replica 0 does.
    const bool has_own = r > 0 && saves_every_replica() && !reader.names(own).empty();
    load_replica(r, core::ScopedReader(reader, has_own ? own : ""));
  }
  load_compression(reader);
}

}  // namespace trainyard::parallel
