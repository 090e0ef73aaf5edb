// Checks the batches of a source against a declared form, so that a wrong batch is an error at its origin.
//
//   auto source = checked(images, {{"images", at::kFloat, {-1, 3, 32, 32}}, {"labels", at::kLong, {-1}}}, "training");
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct TensorForm {
  std::string name{};
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape{};  // -1: any extent
};
// A batch may hold other tensors, too.
using BatchForm = std::vector<TensorForm>;

// Throws kInvalidArgument when a tensor is missing, or has another dtype or shape; `where` names the batch in the
// message: "a tensor of a batch has another form: source 'training', replica 1, tensor 'images': expected Float [-1, 3,
// 32, 32], got Byte [8, 3, 32, 32]".
void check_batch(const Batch& batch, const BatchForm& form, const std::string& where);

// Returns a source with the batches, positions and saved state of `source`, whose next() checks every batch. A batch
// that holds no tensors at all passes: sources that do not repeat end with empty batches.
[[nodiscard]] std::shared_ptr<BatchSource> checked(std::shared_ptr<BatchSource> source, BatchForm form,
                                                   std::string name);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
