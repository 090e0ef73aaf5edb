// Predictions for boxes: from blocked maps to a plain row for each box, in one pass, and their gradients back.
#include <algorithm>
#include <memory>
#include <vector>

#include <c10/util/BFloat16.h>

#include "trainyard/nn/cpu/plan/steps.h"

namespace trainyard::nn::cpu {
namespace {

// One image of a pair: its part of the rows begins in column `column`.
struct BoxColumns {
  ValueId value = -1;
  BufferId data, gradient;
  MapShape map;
  int64_t columns = 0, column = 0;
};

// Copies the channels [first, first + count) of one pixel, a piece for each block of channels. `pixel` is the address
// of lane 0 of the pixel in block 0, `plane` the elements of a block.
template <typename T>
void take_channels(const T* pixel, int64_t plane, int64_t block, int64_t first, int64_t count, float* row) {
  for (int64_t c = first, end = first + count; c < end;) {
    const int64_t lane = c % block, some = std::min(block - lane, end - c);
    const T* const from = pixel + c / block * plane + lane;
    for (int64_t i = 0; i < some; ++i) row[i] = static_cast<float>(from[i]);
    row += some;
    c += some;
  }
}
template <typename T>
void put_channels(const float* row, int64_t plane, int64_t block, int64_t first, int64_t count, T* pixel) {
  for (int64_t c = first, end = first + count; c < end;) {
    const int64_t lane = c % block, some = std::min(block - lane, end - c);
    T* const to = pixel + c / block * plane + lane;
    for (int64_t i = 0; i < some; ++i) to[i] = static_cast<T>(row[i]);
    row += some;
    c += some;
  }
}

class BoxRowsStep : public UnitStep {
 public:
  BoxRowsStep(PlanBuilder& builder, const Unit& unit) : UnitStep(builder, unit), op_(std::get<BoxRows>(node_.op)) {
    bool needs_gradient = false;
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      const ValueId value = builder.map_of(node_.inputs[i]);
      needs_gradient |= builder.needs_gradient(value);
      const bool scores = i % 2 != 0;
      sides_.push_back({.value = value,
                        .map = builder.value(value).map,
                        .columns = scores ? op_.classes : op_.coordinates,
                        .column = scores ? op_.coordinates : 0});
    }
    output_ = builder.new_plain(node_.shape, needs_gradient);
    for (BoxColumns& side : sides_) side.data = builder.data(side.value);
    data_ = builder.value(output_).data;
    dtype_ = builder.dtype();
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override {
    std::vector<ValueId> result;
    for (const BoxColumns& side : sides_) result.push_back(side.value);
    return result;
  }

  void forward(Run& run) override { dtype_ == DataType::kFloat ? gather<float>(run) : gather<c10::BFloat16>(run); }

  void plan_backward(PlanBuilder& builder) override {
    const std::vector<BufferId> gradients = builder.take_gradients(output_, 1);
    if (gradients.empty()) return;
    gradient_ = gradients[0];
    for (BoxColumns& side : sides_) {
      if (builder.needs_gradient(side.value)) side.gradient = builder.give_gradient(side.value, false).buffer;
    }
  }

  void backward(Run& run) override {
    if (!gradient_.valid()) return;
    dtype_ == DataType::kFloat ? scatter<float>(run) : scatter<c10::BFloat16>(run);
  }

 private:
  // Rows [first, ...] of one sample are those of one box of a pair, one at each pixel, `stride` rows apart.
  struct Task {
    size_t pair;
    int64_t sample, box, first, stride;
  };

  std::vector<Task> tasks() const {
    std::vector<Task> tasks;
    const bool by_box = op_.order == BoxRows::Order::kByBox;
    for (int64_t n = 0; n < sides_[0].map.batch; ++n) {
      int64_t first = n * node_.shape[0];
      for (size_t pair = 0; pair < sides_.size(); pair += 2) {
        const MapShape& map = sides_[pair].map;
        const int64_t boxes = map.channels / op_.coordinates;
        for (int64_t a = 0; a < boxes; ++a) {
          tasks.push_back({pair, n, a, first + (by_box ? a * map.pixels() : a), by_box ? 1 : boxes});
        }
        first += boxes * map.pixels();
      }
    }
    return tasks;
  }

  template <typename T>
  void gather(const Run& run) const {
    const std::vector<Task> tasks = this->tasks();
    const int64_t columns = node_.shape[1];
    float* const rows = run.at<float>(data_);
#pragma omp parallel for schedule(dynamic)
    for (const Task& task : tasks) {
      const MapShape& map = sides_[task.pair].map;
      for (int64_t p = 0; p < map.pixels(); ++p) {
        float* const row = rows + (task.first + p * task.stride) * columns;
        for (const BoxColumns* side : {&sides_[task.pair], &sides_[task.pair + 1]}) {
          take_channels(pixel<T>(run.at(side->data), *side, task.sample, p), map.pixels() * map.block, map.block,
                        task.box * side->columns, side->columns, row + side->column);
        }
      }
    }
  }

  template <typename T>
  void scatter(const Run& run) const {
    const std::vector<Task> tasks = this->tasks();
    const int64_t columns = node_.shape[1];
    const float* const rows = run.at<float>(gradient_);
#pragma omp parallel for schedule(dynamic)
    for (const Task& task : tasks) {
      for (const BoxColumns* side : {&sides_[task.pair], &sides_[task.pair + 1]}) {
        if (!side->gradient.valid()) continue;
        const MapShape& map = side->map;
        const int64_t plane = map.pixels() * map.block;
        // The last box of an image fills its last block up with zeros.
        const int64_t unused = task.box == map.channels / side->columns - 1 ? map.padded_channels() - map.channels : 0;
        for (int64_t p = 0; p < map.pixels(); ++p) {
          T* const target = pixel<T>(run.at(side->gradient), *side, task.sample, p);
          put_channels(rows + (task.first + p * task.stride) * columns + side->column, plane, map.block,
                       task.box * side->columns, side->columns, target);
          T* const rest = target + (map.blocks() - 1) * plane + map.block - unused;
          std::fill_n(rest, unused, static_cast<T>(0.0F));
        }
      }
    }
  }

  // Returns the address of lane 0 of a pixel in the first block of a sample.
  template <typename T>
  static T* pixel(void* map, const BoxColumns& side, int64_t sample, int64_t index) {
    const int64_t sample_elements = side.map.padded_channels() * side.map.pixels();
    return static_cast<T*>(map) + sample * sample_elements + index * side.map.block;
  }

  const BoxRows& op_;
  std::vector<BoxColumns> sides_;
  DataType dtype_ = DataType::kFloat;
  ValueId output_ = -1;
  BufferId data_, gradient_;
};

}  // namespace

void make_box_rows(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<BoxRowsStep>(builder, unit), "box rows");
}

}  // namespace trainyard::nn::cpu
