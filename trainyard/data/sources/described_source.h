// What is known of a source's batches: the classes of the labels, how images become input, how many batches an epoch
// has. The description is found through decorators (SourceDecorator), so that a training on augmented batches has it,
// too.
//
//   if (const auto said = data::description_of(*source)) classes = said->classes;
//   const int64_t batches = data::batches_in_epoch(*source);
//
// checked() holds batches to a form that the caller declares, so that a wrong batch is an error at its origin:
//
//   auto source = checked(images, {{"images", at::kFloat, {-1, 3, 32, 32}}, {"labels", at::kLong, {-1}}}, "training");
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct SourceDescription {
  std::vector<std::string> classes{};  // by label; empty: the labels are numbers only
  std::string transform = "imagenet";  // how an image becomes input: a name of transforms()
  TransformOptions input{};            // options of that transform
  bool training = true;                // shuffled epochs without an end
};

// A source with a description. Derive from it and from BatchSource.
class DescribedSource {
 public:
  virtual ~DescribedSource() = default;
  [[nodiscard]] virtual SourceDescription description() const = 0;
};

// Returns the description of the source, or of the nearest source that it decorates. Combined sources
// (combined_source.h) have the description of their parts, when those that have one agree on classes and on the
// evaluation's input. Returns nothing when there is none.
[[nodiscard]] std::optional<SourceDescription> description_of(const BatchSource& source);

// Returns how many batches an epoch has (SizedSource), from the source or the nearest one that it decorates with the
// same batch size and number of replicas; 0 when unknown.
[[nodiscard]] int64_t batches_in_epoch(const BatchSource& source);

// Returns the source itself when it has this type, else the nearest one of this type that it decorates, else null.
template <typename Type>
[[nodiscard]] const Type* find_source(const BatchSource& source) {
  if (const auto* const found = dynamic_cast<const Type*>(&source)) return found;
  const auto* const around = dynamic_cast<const SourceDecorator*>(&source);
  return around == nullptr || around->inner() == nullptr ? nullptr : find_source<Type>(*around->inner());
}

// Returns whether both make the same input from an image in evaluation: the same size, scaling, crop and normalization.
[[nodiscard]] bool same_evaluation_input(const TransformOptions& a, const TransformOptions& b);

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
