// Combines several sources: one for each replica, or all of them in each batch.
#pragma once

#include <memory>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/sources/combined_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Source r makes the batches of replica r. The batches may have different sizes, shapes and tensors: images of 48 x 48
// on one device and of 32 x 32 on another. When a source ends before the others, its replica gets empty batches,
// without tensors; the joined source ends with its last source.
class JoinedSource : public CombinedSource {
 public:
  // Throws kInvalidArgument for a source that has more than one replica.
  explicit JoinedSource(std::vector<std::shared_ptr<BatchSource>> sources);

  int replicas() const override { return static_cast<int>(size()); }

 private:
  std::vector<Batch> next_batches() override;
};

// Each replica's batch holds the tensors of all sources' batches for it, in the sources' order. It ends with the first
// source that ends. Samples are counted as the first source's.
class ZippedSource : public CombinedSource {
 public:
  // Throws kInvalidArgument when the sources have different numbers of replicas. next() throws it when two sources have
  // tensors of the same name.
  explicit ZippedSource(std::vector<std::shared_ptr<BatchSource>> sources);

  int replicas() const override { return source(0).replicas(); }

 private:
  std::vector<Batch> next_batches() override;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
