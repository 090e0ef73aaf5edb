// error: apply\(.*\) const' marked 'override', but does not override
#include <memory>

#include "trainyard/data/augment/transform.h"

namespace transform_with_another_signature {

namespace core = trainyard::core;
namespace data = trainyard::data;

class Gray : public data::Transform {
 public:
  data::ImageSize size() const override { return {1, 1}; }
#ifdef MISTAKE
  core::Result<void> apply(const data::Record& record, void* out) const override;
#else
  core::Result<void> apply(const data::Record& record, const data::SampleKey& key, void* out) const override;
#endif
};

}  // namespace transform_with_another_signature
