// What the ranks of a world agree on before the first collective: on which hosts they are, and the
// cost model by which they choose algorithms. Rank 0's model is everybody's.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/collective/selection.h"
#include "transport/endpoint.h"
#include "transport/mesh/mesh.h"

namespace dlaunch {

/// The round of the exchange in which they do.
inline constexpr std::string_view kTuningRound = "tuning";

/// All ranks call this with an endpoint of theirs that is connected, at the same place.
/// `local_cores` are those that the ranks of this host share. `model_file` is read on rank 0 only;
/// empty: the built-in model. Its errors (kInvalidArgument) are everybody's.
Result<std::shared_ptr<const Tuning>> agree_on_tuning(const Endpoint& endpoint, int local_cores,
                                                      const std::string& model_file,
                                                      const Exchange& exchange, Deadline deadline);

}  // namespace dlaunch
