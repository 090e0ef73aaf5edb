#include "trainyard/nn/execution/parameter_set.h"

#include <bit>
#include <numeric>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/all.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/pattern.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/memory/cpu_allocator.h"

namespace trainyard::nn {
namespace {

constexpr int64_t kAlignment = 16;      // elements
constexpr const char* kMask = ".mask";  // behind a parameter's name, where states hold its mask

std::vector<std::string> names_of(const std::map<std::string, int, std::less<>>& index) {
  std::vector<std::string> names;
  for (const auto& [name, position] : index) names.push_back(name);
  return names;
}

core::Error shape_error(std::string_view kind, const std::string& name, const Shape& expected, const Shape& actual) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = fmt::format("{} has another shape in this set", kind),
           .where = name,
           .expected = to_string(expected),
           .actual = to_string(actual)}};
}

core::Error declared_twice(std::string_view kind, const std::string& name) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = fmt::format("{} is declared twice", kind),
           .where = name,
           .remedy = "give each node, or each executor of an unallocated set, a prefix of its own"}};
}

// The index of `name`, whose shape must be the one in `specs`.
template <typename Entry, typename ShapeOf>
int index_of(std::string_view kind, const std::map<std::string, int, std::less<>>& index,
             const std::vector<Entry>& entries, ShapeOf shape_of, const std::string& name, const Shape& shape) {
  const auto found = index.find(name);
  if (found == index.end()) throw core::unknown_name(kind, name, names_of(index));
  const Shape& existing = shape_of(entries[static_cast<size_t>(found->second)]);
  if (existing != shape) throw shape_error(kind, name, existing, shape);
  return found->second;
}

at::Tensor zeros(int64_t count, const at::TensorOptions& options) {
  if (!options.device().is_cpu() || count == 0) return at::zeros({count}, options);
  core::CpuMemory memory = core::zeroed_cpu_memory(static_cast<size_t>(count) * options.dtype().itemsize());
  const auto free = memory.get_deleter();
  return at::from_blob(memory.release(), {count}, free, options);
}

// Returns block.narrow(0, offset, count).view(shape), without LibTorch's dispatcher, which takes microseconds for each:
// a step of a small network asks for some hundreds. `block` does not require a gradient. As with those, a change in
// place is counted by the versions of both.
at::Tensor segment_view(const at::Tensor& block, const Segment& place) {
  auto view = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(block.storage()),
                                                   block.key_set(), block.dtype());
  view->set_storage_offset(block.storage_offset() + place.offset);
  view->set_sizes_contiguous(place.spec.shape);
  view->set_version_counter(block.unsafeGetTensorImpl()->version_counter());
  return at::Tensor(std::move(view));
}

// Writes 0 where `dropped` is 1, and leaves what is there where it is 0. Every step of a pruned model does it, so it is
// a loop over bits without a branch, which compilers turn into vectors; masked_fill() branches for each element. Not a
// product: zero times infinity is not zero.
template <typename T, typename Bits>
void write_zeros(T* values, const uint8_t* dropped, int64_t count) {
  static_assert(sizeof(T) == sizeof(Bits));
  constexpr int64_t kGrain = 65536;
  at::parallel_for(0, count, kGrain, [&](int64_t first, int64_t last) {
#if !defined(__clang__)
#pragma GCC ivdep  // masks and values never overlap
#endif
    for (int64_t i = first; i < last; ++i) {
      const Bits kept = static_cast<Bits>(dropped[i]) - 1;  // all bits, or none
      values[i] = std::bit_cast<T>(std::bit_cast<Bits>(values[i]) & kept);
    }
  });
}

}  // namespace

ParameterSet::ParameterSet(ParameterSetOptions options)
    : options_(options),
      version_(std::make_shared<std::atomic<uint64_t>>(0)),
      dropped_(std::make_shared<std::map<int, at::Tensor>>()) {}
ParameterSet::ParameterSet(ParameterSet&&) noexcept = default;
ParameterSet& ParameterSet::operator=(ParameterSet&&) noexcept = default;

ParameterSet ParameterSet::sharing_values(ParameterSet& other) {
  other.require_allocated(true, "share values of");
  ParameterSet set = other.clone_declarations_and_buffers();
  // The same numbers under a version counter of autograd's own: a server may update them while a replica's backward
  // still reads them, which is what asynchronous training is.
  set.values_ = other.values_.variable_data();
  set.gradients_ = zeros(other.total_, other.values_.options());
  set.version_ = other.version_;
  set.dropped_ = other.dropped_;
  return set;
}

ParameterSet ParameterSet::clone() const {
  require_allocated(true, "clone");
  ParameterSet set = clone_declarations_and_buffers();
  set.values_ = values_.clone();
  *set.dropped_ = *dropped_;
  set.gradients_ = gradients_.clone();
  return set;
}

ParameterSet ParameterSet::clone_declarations_and_buffers() const {
  ParameterSet set(options_);
  set.declared_ = declared_;
  set.trainable_ = trainable_;
  set.frozen_count_ = frozen_count_;
  set.trainable_version_ = trainable_version_;
  set.segments_ = segments_;
  set.segment_of_ = segment_of_;
  set.parameter_index_ = parameter_index_;
  set.buffer_index_ = buffer_index_;
  for (const Buffer& buffer : buffers_) set.buffers_.push_back({buffer.spec, buffer.value.clone()});
  set.total_ = total_;
  return set;
}

void ParameterSet::require_allocated(bool wanted, std::string_view operation) const {
  if (allocated() == wanted) return;
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = fmt::format("cannot {} a parameter set {} allocate()", operation, wanted ? "before" : "after"),
       .remedy = "make the executors that declare its parameters, then allocate(), then use it"});
}

ParameterId ParameterSet::declare(const ParameterSpec& spec) {
  if (allocated()) {
    const auto shape_of = [](const ParameterSpec& existing) -> const Shape& { return existing.shape; };
    return {index_of("parameter", parameter_index_, declared_, shape_of, spec.name, spec.shape)};
  }
  const int index = static_cast<int>(declared_.size());
  if (!parameter_index_.emplace(spec.name, index).second) throw declared_twice("a parameter", spec.name);
  declared_.push_back(spec);
  trainable_.push_back(true);
  provided_.emplace_back();
  return {index};
}

int ParameterSet::declare_buffer(const BufferSpec& spec) {
  if (allocated()) {
    const auto shape_of = [](const Buffer& existing) -> const Shape& { return existing.spec.shape; };
    return index_of("buffer", buffer_index_, buffers_, shape_of, spec.name, spec.shape);
  }
  const int index = static_cast<int>(buffers_.size());
  if (!buffer_index_.emplace(spec.name, index).second) throw declared_twice("a buffer", spec.name);
  buffers_.push_back({spec, {}});
  return index;
}

void ParameterSet::provide(ParameterId id, const at::Tensor& start) {
  require_allocated(false, "provide values of");
  provided_.at(static_cast<size_t>(id.index)) = start.detach();
}

void ParameterSet::provide_buffer(int index, const at::Tensor& start) {
  require_allocated(false, "provide buffers of");
  buffers_.at(static_cast<size_t>(index)).value = start.detach();
}

void ParameterSet::place_gradients(GradientMemory memory) {
  require_allocated(false, "place the gradients of");
  gradient_memory_ = std::move(memory);
}

void ParameterSet::place_values(GradientMemory memory) {
  require_allocated(false, "place the values of");
  value_memory_ = std::move(memory);
}

void ParameterSet::allocate() {
  require_allocated(false, "allocate");
  segment_of_.resize(declared_.size());
  for (size_t index = declared_.size(); index-- > 0;) {
    Segment segment{.id = {static_cast<int>(index)}, .spec = declared_[index], .offset = total_, .count = 1};
    for (int64_t extent : segment.spec.shape) segment.count *= extent;
    segment_of_[index] = static_cast<int>(segments_.size());
    total_ += (segment.count + kAlignment - 1) / kAlignment * kAlignment;
    segments_.push_back(std::move(segment));
  }
  const auto options = at::TensorOptions(options_.dtype).device(options_.device);
  const auto place = [&](GradientMemory& memory) {
    const GradientMemory given = std::exchange(memory, nullptr);
    at::Tensor block;
    if (given && options_.device.is_cpu() && total_ > 0) block = given(total_, options_.dtype);
    return block.defined() ? block : zeros(total_, options);
  };
  values_ = place(value_memory_);
  gradients_ = place(gradient_memory_);
  for (size_t index = 0; index < declared_.size(); ++index) {
    if (provided_[index].defined()) value({static_cast<int>(index)}).copy_(provided_[index]);
  }
  provided_.clear();
  for (Buffer& buffer : buffers_) {
    const at::Tensor start = buffer.value;
    buffer.value = at::zeros(buffer.spec.shape, start.defined() ? options.dtype(start.scalar_type()) : options);
    if (start.defined()) buffer.value.copy_(start);
  }
}

void ParameterSet::initialize(uint64_t seed) {
  require_allocated(true, "initialize");
  const auto fill = [seed](const at::Tensor& destination, const Initializer& init, const std::string& name) {
    if (init.kind == Initializer::Kind::kFromModule) return;
    if (destination.is_cpu()) return initialize_tensor(destination, init, seed, name);
    at::Tensor staged = at::empty(destination.sizes(), destination.options().device(at::kCPU));
    initialize_tensor(staged, init, seed, name);
    destination.copy_(staged);
  };
  for (size_t index = 0; index < declared_.size(); ++index) {
    fill(value({static_cast<int>(index)}), declared_[index].init, declared_[index].name);
  }
  for (const Buffer& buffer : buffers_) fill(buffer.value, buffer.spec.init, buffer.spec.name);
  apply_masks();
  values_changed();
}

const Segment& ParameterSet::segment(ParameterId id) const {
  return segments_.at(static_cast<size_t>(segment_of_.at(static_cast<size_t>(id.index))));
}

std::optional<ParameterId> ParameterSet::find(std::string_view name) const {
  const auto found = parameter_index_.find(name);
  if (found == parameter_index_.end()) return std::nullopt;
  return ParameterId{found->second};
}

std::vector<ParameterId> ParameterSet::matching(const std::string& pattern) const {
  require_allocated(true, "look for names in");
  std::vector<ParameterId> ids;
  for (const Segment& segment : segments_) {
    if (core::matches_pattern(segment.spec.name, pattern)) ids.push_back(segment.id);
  }
  if (!ids.empty()) return ids;
  std::vector<std::string> names;
  for (const Segment& segment : segments_) names.push_back(segment.spec.name);
  throw core::Error(core::ErrorCode::kNotFound,
                    {.problem = fmt::format("no parameter is named as '{}'", pattern),
                     .expected = fmt::format("a pattern of names as '{}'", names.empty() ? "" : names.front()),
                     .remedy = core::names_near_pattern(pattern, names)});
}

std::optional<int> ParameterSet::find_buffer(std::string_view name) const {
  const auto found = buffer_index_.find(name);
  if (found == buffer_index_.end()) return std::nullopt;
  return found->second;
}

at::Tensor ParameterSet::value(ParameterId id) const {
  return segment_view(values_, segment(id));
}

at::Tensor ParameterSet::gradient(ParameterId id) const {
  return segment_view(gradients_, segment(id));
}

void ParameterSet::set_trainable(ParameterId id, bool trainable) {
  if (this->trainable(id) == trainable) return;
  trainable_[static_cast<size_t>(id.index)] = trainable;
  frozen_count_ += trainable ? -1 : 1;
  ++trainable_version_;
}

void ParameterSet::set_mask(ParameterId id, const at::Tensor& mask) {
  require_allocated(true, "mask values of");
  const ParameterSpec& spec = segment(id).spec;
  if (!values_.is_cpu()) {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "parameters are not masked on a device yet",
                                                      .where = spec.name,
                                                      .expected = "parameters in the host's memory"});
  }
  if (!mask.defined()) {
    dropped_->erase(id.index);
    return;
  }
  if (mask.sizes() != spec.shape) throw shape_error("a mask", spec.name, spec.shape, mask.sizes().vec());
  const at::Tensor dropped = mask.detach().eq(0).contiguous();
  if (!dropped.logical_or(mask.eq(1)).all().item<bool>()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a mask has numbers other than 0 and 1",
                                                          .where = spec.name,
                                                          .remedy = "compare the numbers first: weight.abs() > 0.01"});
  }
  dropped_->insert_or_assign(id.index, dropped);
  apply_mask(id);
  values_changed();
}

at::Tensor ParameterSet::mask(ParameterId id) const {
  const auto found = dropped_->find(id.index);
  return found == dropped_->end() ? at::Tensor() : found->second.logical_not();
}

void ParameterSet::apply_mask(ParameterId id) {
  if (dropped_->empty()) return;
  const auto found = dropped_->find(id.index);
  if (found == dropped_->end()) return;
  const Segment& place = segment(id);
  const auto* const dropped = static_cast<const uint8_t*>(found->second.const_data_ptr());
  if (options_.dtype == at::kFloat) {
    write_zeros<float, uint32_t>(values_.mutable_data_ptr<float>() + place.offset, dropped, place.count);
  } else if (options_.dtype == at::kDouble) {
    write_zeros<double, uint64_t>(values_.mutable_data_ptr<double>() + place.offset, dropped, place.count);
  } else {
    value(id).masked_fill_(found->second, 0);
  }
}

void ParameterSet::apply_masks() {
  for (const auto& [index, dropped] : *dropped_) apply_mask({index});
}

void ParameterSet::require_same_declarations(const ParameterSet& other) const {
  const auto differ = [](std::string problem, std::string where) {
    return core::Error(core::ErrorCode::kInvalidArgument, {.problem = std::move(problem), .where = std::move(where)});
  };
  if (declared_.size() != other.declared_.size() || buffers_.size() != other.buffers_.size()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "parameter sets of different models",
                       .expected = fmt::format("{} parameters and {} buffers", declared_.size(), buffers_.size()),
                       .actual = fmt::format("{} and {}", other.declared_.size(), other.buffers_.size())});
  }
  for (size_t i = 0; i < declared_.size(); ++i) {
    const ParameterSpec &mine = declared_[i], &theirs = other.declared_[i];
    if (mine.name != theirs.name) throw differ("parameter sets of different models", mine.name + ", " + theirs.name);
    if (mine.shape != theirs.shape) throw shape_error("parameter", mine.name, mine.shape, theirs.shape);
  }
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const BufferSpec &mine = buffers_[i].spec, &theirs = other.buffers_[i].spec;
    if (mine.name != theirs.name) throw differ("parameter sets of different models", mine.name + ", " + theirs.name);
    if (mine.shape != theirs.shape) throw shape_error("buffer", mine.name, mine.shape, theirs.shape);
  }
}

void ParameterSet::copy_from(const ParameterSet& other) {
  require_allocated(true, "copy into");
  other.require_allocated(true, "copy");
  require_same_declarations(other);
  values_.copy_(other.values_);
  // A set on a device gets the zeros of `other`, but none of its masks, as in load(): apply_mask() writes host memory.
  if (values_.is_cpu()) *dropped_ = *other.dropped_;
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].value.copy_(other.buffers_[i].value);
  values_changed();
}

void ParameterSet::save(core::StateWriter& writer) const {
  require_allocated(true, "save");
  for (int index = 0; index < static_cast<int>(declared_.size()); ++index) {
    const std::string& name = declared_[static_cast<size_t>(index)].name;
    writer.tensor(name, value({index}));
    if (const at::Tensor kept = mask({index}); kept.defined()) writer.tensor(name + kMask, kept);
  }
  for (const Buffer& buffer : buffers_) writer.tensor(buffer.spec.name, buffer.value);
}

void ParameterSet::load(const core::StateReader& reader) {
  require_allocated(true, "load");
  for (int index = 0; index < static_cast<int>(declared_.size()); ++index) {
    const std::string& name = declared_[static_cast<size_t>(index)].name;
    at::Tensor destination = value({index});
    reader.tensor(name, destination);
    if (values_.is_cpu()) set_mask({index}, reader.has(name + kMask) ? reader.tensor(name + kMask) : at::Tensor());
  }
  for (Buffer& buffer : buffers_) reader.tensor(buffer.spec.name, buffer.value);
  values_changed();
}

}  // namespace trainyard::nn
