#include "nn/layers/sync_batch_norm.h"

namespace dlaunch::nn {

SyncBatchNorm::SyncBatchNorm(Backend& backend, std::int64_t channels, Communicator& group,
                             BatchNormOptions options, const std::string& name)
    : BatchNorm(backend, channels, options,
                name.empty() ? "SyncBatchNorm" : "SyncBatchNorm " + name, &group) {}

}  // namespace dlaunch::nn
