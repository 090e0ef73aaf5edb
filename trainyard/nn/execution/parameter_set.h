// The parameters of a model, for one replica: fp32 master values, gradients and buffers (batch norm statistics), in
// plain layout. Values are in one flat block, gradients in another of the same form, so that optimizers, reductions,
// clipping, averages and checkpoints work on whole blocks or on segments of them.
//
//   ParameterSet set;
//   auto id = set.declare({"fc.weight", {10, 64}, Initializer::he_uniform()});
//   set.allocate();                       // after all are declared
//   set.initialize(seed);
//   at::Tensor w = set.value(id);         // [10, 64], a view of set.values()
//
// Segments are ordered by reverse declaration, which is reverse use: the order in which backward finishes gradients.
// Each begins at a multiple of 16 elements (64 bytes); the gaps stay zero. Not thread-safe while it is built;
// afterwards threads may use different segments at the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/graph/graph.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

struct ParameterId {
  int index = -1;  // order of declaration
  bool operator==(const ParameterId&) const = default;
};

struct Segment {
  ParameterId id{};
  ParameterSpec spec{};
  int64_t offset = 0;  // elements, in values() and gradients()
  int64_t count = 0;   // elements
};

struct ParameterSetOptions {
  at::ScalarType dtype = at::kFloat;  // kDouble for numerical tests
  at::Device device = at::kCPU;
};

class ParameterSet : public core::Stateful {
 public:
  explicit ParameterSet(ParameterSetOptions options = {});
  // Returns a set that shares the values of `other`, which must be allocated, and has its own gradients and buffers;
  // buffers, and the trainable flags, start as copies. For a replica of a parameter server, or an evaluation that must
  // not change training's statistics.
  [[nodiscard]] static ParameterSet sharing_values(ParameterSet& other);
  // Returns a set with the same declarations and its own copies of everything.
  [[nodiscard]] ParameterSet clone() const;

  ParameterSet(ParameterSet&&) noexcept;
  ParameterSet& operator=(ParameterSet&&) noexcept;

  // Before allocate(), declares a new parameter. After it, returns the existing one of that name, whose shape must be
  // the same: in this way a second executor binds to the set. Throws kInvalidArgument with both shapes, or kNotFound
  // with the nearest name.
  ParameterId declare(const ParameterSpec& spec);
  int declare_buffer(const BufferSpec& spec);
  // Sets the initial value of a kFromModule parameter or buffer, which allocate() copies; call it before that. It also
  // sets the dtype of a buffer (torch::nn modules count batches in int64).
  void provide(ParameterId id, const at::Tensor& start);
  void provide_buffer(int index, const at::Tensor& start);
  // Sets where allocate() puts the gradients of a set in host memory: in the result of `memory`, which holds zeros,
  // [elements], of `dtype`, or in memory of its own when that is undefined. Call it before allocate().
  using GradientMemory = std::function<at::Tensor(int64_t elements, at::ScalarType dtype)>;
  void place_gradients(GradientMemory memory);
  // Does the same for the values.
  void place_values(GradientMemory memory);
  void allocate();
  bool allocated() const { return values_.defined(); }

  // Fills values and buffers by their initializers, each from the stream (seed, name): the same numbers with any number
  // of threads and in any order. kFromModule entries are not changed.
  void initialize(uint64_t seed);

  size_t size() const { return declared_.size(); }
  at::ScalarType dtype() const { return options_.dtype; }
  const std::vector<Segment>& segments() const { return segments_; }  // by offset
  const Segment& segment(ParameterId id) const;
  std::optional<ParameterId> find(std::string_view name) const;
  // Returns the parameters that match `pattern` (core::matches_pattern), by offset. Throws kNotFound when there is
  // none. After allocate().
  [[nodiscard]] std::vector<ParameterId> matching(const std::string& pattern) const;
  at::Tensor value(ParameterId id) const;              // view, parameter's shape
  at::Tensor gradient(ParameterId id) const;           // view, parameter's shape
  at::Tensor values() const { return values_; }        // [total] dtype
  at::Tensor gradients() const { return gradients_; }  // [total] dtype
  int64_t total() const { return total_; }             // number of elements, including gaps

  size_t buffer_count() const { return buffers_.size(); }
  at::Tensor buffer(int index) const { return buffers_[static_cast<size_t>(index)].value; }
  const BufferSpec& buffer_spec(int index) const { return buffers_[static_cast<size_t>(index)].spec; }
  std::optional<int> find_buffer(std::string_view name) const;

  // Copies values, masks and buffers from `other`, which has the same declarations.
  void copy_from(const ParameterSet& other);

  // Returns a number that grows with every change of values. Caches (packed weights, bf16 copies) are keyed by it. All
  // sets that share values have one count. Any thread may call it.
  [[nodiscard]] uint64_t version() const { return version_->load(); }
  void values_changed() { version_->fetch_add(1); }

  // Sets whether a parameter trains, which is the default. Executors in training mode apply it from their next forward
  // on: a frozen parameter's gradient is zero, and a batch norm whose parameters are all frozen normalizes with its
  // running statistics and does not change them (as Keras does for trainable = False). Values are not protected: an
  // optimizer's weight decay and momentum may change them. The flags belong to this set, also when it shares values,
  // and they are not saved. Call it between steps only, while no other thread uses the set.
  void set_trainable(ParameterId id, bool trainable);
  bool trainable(ParameterId id) const { return trainable_.at(static_cast<size_t>(id.index)); }
  bool all_trainable() const { return frozen_count_ == 0; }
  // Returns a number that grows with each change that set_trainable() makes. Executors key plans by it.
  [[nodiscard]] uint64_t trainable_version() const { return trainable_version_; }

  // Holds elements of a parameter at zero, as pruning does: where `mask` is 0 the value is 0 from now on, and after
  // each update of an optimizer. `mask` is [parameter's shape], bool or numbers that are 0 or 1; an undefined tensor
  // removes the mask. Masks belong to the values: sets that share values share them. Optimizer slots are not masked.
  // Throws kInvalidArgument for another shape and other numbers, kUnsupported when values are not in host memory. Call
  // it after allocate(), between steps only, while no other thread uses the set.
  void set_mask(ParameterId id, const at::Tensor& mask);
  // Returns [parameter's shape] bool, false where the value is held at zero; undefined without a mask.
  [[nodiscard]] at::Tensor mask(ParameterId id) const;
  // Sets masked values of the parameter to zero again, if it has a mask. Call it after changing values.
  void apply_mask(ParameterId id);

  // Saves and loads each parameter and buffer under its name, and a mask as "<parameter>.mask". Loading a state without
  // a mask removes it.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  struct Buffer {
    BufferSpec spec{};
    at::Tensor value{};  // before allocate(): the value from provide(), if any
  };
  ParameterSet clone_declarations_and_buffers() const;
  void apply_masks();
  void require_allocated(bool wanted, std::string_view operation) const;
  void require_same_declarations(const ParameterSet& other) const;

  ParameterSetOptions options_;
  std::vector<ParameterSpec> declared_;
  std::vector<bool> trainable_;  // by ParameterId
  int frozen_count_ = 0;         // parameters that are not trainable
  uint64_t trainable_version_ = 0;
  std::vector<at::Tensor> provided_;  // by ParameterId, until allocate()
  std::vector<Segment> segments_;
  std::vector<int> segment_of_;  // by ParameterId
  std::map<std::string, int, std::less<>> parameter_index_, buffer_index_;
  std::vector<Buffer> buffers_;
  GradientMemory gradient_memory_, value_memory_;  // until allocate()
  at::Tensor values_, gradients_;
  int64_t total_ = 0;
  std::shared_ptr<std::atomic<uint64_t>> version_;
  // By ParameterId, [parameter's shape] bool: true where the value is held at zero. Shared by sets that share values.
  std::shared_ptr<std::map<int, at::Tensor>> dropped_;
};

// Fills `tensor` (CPU, float or double, contiguous) as ParameterSet::initialize() does for `name`.
void initialize_tensor(at::Tensor tensor, const Initializer& init, uint64_t seed, std::string_view name);

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
