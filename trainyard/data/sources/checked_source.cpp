#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/described_source.h"

namespace trainyard::data {
namespace {

std::string form_text(at::ScalarType dtype, at::IntArrayRef shape) {
  return fmt::format("{} [{}]", c10::toString(dtype), fmt::join(shape.begin(), shape.end(), ", "));
}

bool has_shape(const at::Tensor& tensor, const std::vector<int64_t>& shape) {
  if (tensor.dim() != static_cast<int64_t>(shape.size())) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1 && shape[i] != tensor.size(static_cast<int64_t>(i))) return false;
  }
  return true;
}

class CheckedSource : public SourceDecorator {
 public:
  CheckedSource(std::shared_ptr<BatchSource> source, BatchForm form, std::string name)
      : SourceDecorator(std::move(source)), form_(std::move(form)), name_(std::move(name)) {
    if (this->source() == nullptr) throw core::Error(core::ErrorCode::kInvalidArgument, "there is no source to check");
  }

  std::vector<Batch> next() override {
    std::vector<Batch> batches = source()->next();
    for (size_t r = 0; r < batches.size(); ++r) {
      if (!batches[r].tensors.empty()) check_batch(batches[r], form_, fmt::format("source '{}', replica {}", name_, r));
    }
    return batches;
  }

 private:
  BatchForm form_;
  std::string name_;
};

}  // namespace

void check_batch(const Batch& batch, const BatchForm& form, const std::string& where) {
  for (const TensorForm& wanted : form) {
    const std::string place = fmt::format("{}, tensor '{}'", where, wanted.name);
    const std::string expected = form_text(wanted.dtype, wanted.shape);
    const at::Tensor* const tensor = batch.tensors.find(wanted.name);
    if (tensor == nullptr) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "a batch lacks a tensor",
                         .where = place,
                         .expected = expected,
                         .actual = fmt::format("just '{}'", fmt::join(batch.tensors.names(), "', '"))});
    }
    if (tensor->scalar_type() == wanted.dtype && has_shape(*tensor, wanted.shape)) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a tensor of a batch has another form",
                                                          .where = place,
                                                          .expected = expected,
                                                          .actual = form_text(tensor->scalar_type(), tensor->sizes())});
  }
}

std::shared_ptr<BatchSource> checked(std::shared_ptr<BatchSource> source, BatchForm form, std::string name) {
  return std::make_shared<CheckedSource>(std::move(source), std::move(form), std::move(name));
}

}  // namespace trainyard::data
