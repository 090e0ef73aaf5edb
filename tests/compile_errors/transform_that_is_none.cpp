// error: static assertion failed: core::Registration: the last argument is not what this registry keeps
#include <memory>

#include "trainyard/data/augment/transform.h"

namespace transform_that_is_none {

namespace core = trainyard::core;
namespace data = trainyard::data;

class Gray : public data::Transform {
 public:
  data::ImageSize size() const override { return {1, 1}; }
  core::Result<void> apply(const data::Record& record, const data::SampleKey& key, void* out) const override;
};

#ifdef MISTAKE
const core::Registration kGray(data::transforms(), "gray", [] { return std::make_unique<Gray>(); });
#else
const core::Registration kGray(data::transforms(), "gray",
                               [](const data::TransformOptions&) { return std::make_unique<Gray>(); });
#endif

}  // namespace transform_that_is_none
