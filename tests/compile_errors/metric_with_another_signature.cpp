// error: update\(const at::Tensor&\)' marked 'override', but does not override
#include "trainyard/train/evaluation/metrics.h"

namespace metric_with_another_signature {

namespace train = trainyard::train;

class Mean : public train::Metric {
 public:
#ifdef MISTAKE
  void update(const at::Tensor& output) override;
#else
  void update(const train::MetricBatch& batch) override;
#endif
};

}  // namespace metric_with_another_signature
