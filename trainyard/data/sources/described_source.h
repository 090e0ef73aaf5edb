// What a source says of its batches, apart from making them: the classes behind the labels, how images become input,
// and how many batches an epoch has. Found through the sources around it (source_decorator.h), so that a training on
// augmented batches knows as much as one on the batches themselves.
//
//   if (const auto said = data::description_of(*source)) classes = said->classes;
//   const int64_t batches = data::batches_in_epoch(*source);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/source_decorator.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct SourceDescription {
  std::vector<std::string> classes{};  // by label; empty: the labels are numbers only
  std::string transform = "imagenet";  // how an image becomes input: a name of transforms()
  TransformOptions input{};            // of that transform
  bool training = true;                // shuffled epochs without an end
};

// A source that says it. Derive from it and from BatchSource.
class DescribedSource {
 public:
  virtual ~DescribedSource() = default;
  [[nodiscard]] virtual SourceDescription description() const = 0;
};

// Returns what the source says, or the nearest one that it is around. Of combined sources (combined_source.h) it is
// what those say that say something, where they say the same of classes and of images in evaluation. Nothing where
// none says it.
[[nodiscard]] std::optional<SourceDescription> description_of(const BatchSource& source);

// Returns how many batches an epoch has (sized_source.h), by the source or the nearest one that it is around with
// batches of the same size for as many replicas; 0 where none says it.
[[nodiscard]] int64_t batches_in_epoch(const BatchSource& source);

// Returns the source itself where it is of this type, else the nearest one that it is around; null: there is none.
template <typename Type>
[[nodiscard]] const Type* find_source(const BatchSource& source) {
  if (const auto* const found = dynamic_cast<const Type*>(&source)) return found;
  const auto* const around = dynamic_cast<const SourceDecorator*>(&source);
  return around == nullptr || around->inner() == nullptr ? nullptr : find_source<Type>(*around->inner());
}

// Returns whether images become the same input in evaluation: by the same size, scaling, cut and normalization.
[[nodiscard]] bool same_evaluation_input(const TransformOptions& a, const TransformOptions& b);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
