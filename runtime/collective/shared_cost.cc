#include "runtime/collective/path_cost.h"
#include "runtime/collective/selection.h"

namespace dlaunch {

// Inputs are copied into slots, without the owner's slice; only a scatter's is read where it is.
PathCost shared_cost(const CollectiveShape& shape, const TopologySummary& topology) {
  PathCost cost;
  if (topology.ranks == 1) return cost;
  const double n = shape.bytes;
  const double p = topology.ranks;
  const double share = (p - 1) / p * n;  // all slices but one
  const double alone = 1 / p;            // of the ranks: the root
  cost.add(Effort::kSync, 1);
  switch (shape.kind) {
    case CollectiveKind::kBarrier:
      break;
    case CollectiveKind::kAllReduce:
      if (shape.algorithm == Algorithm::kOneShot) {
        cost.add(Effort::kCopiedBytes, n);
        cost.add(Effort::kReducedBytes, (p - 1) * n);
      } else {
        cost.add(Effort::kSync, 1);
        cost.add(Effort::kCopiedBytes, 2 * share);
        cost.add(Effort::kReducedBytes, share);
      }
      break;
    case CollectiveKind::kReduce:
      if (is_reduced_alone(static_cast<std::size_t>(n), topology.ranks,
                           topology.most_per_host <= topology.cores_per_host)) {
        cost.add(Effort::kCopiedBytes, n);
        cost.add(Effort::kReducedBytes, (p - 1) * n, alone);
        break;
      }
      cost.add(Effort::kSync, 1);
      cost.add(Effort::kCopiedBytes, share);
      cost.add(Effort::kCopiedBytes, share, alone);
      cost.add(Effort::kReducedBytes, share);
      break;
    case CollectiveKind::kReduceScatter:
      cost.add(Effort::kCopiedBytes, share);
      cost.add(Effort::kReducedBytes, share);
      break;
    case CollectiveKind::kBroadcast:
      cost.add(Effort::kCopiedBytes, n, alone);
      cost.add(Effort::kCopiedBytes, n);
      break;
    case CollectiveKind::kScatter:
      cost.add(Effort::kCopiedBytes, n / p);
      break;
    case CollectiveKind::kGather:
      cost.add(Effort::kCopiedBytes, n / p);
      cost.add(Effort::kCopiedBytes, share, alone);
      break;
    case CollectiveKind::kAllGather:
      cost.add(Effort::kCopiedBytes, n);
      break;
    case CollectiveKind::kAllToAll:
      cost.add(Effort::kCopiedBytes, share + n);
      break;
  }
  return cost;
}

std::string_view to_string(Effort effort) {
  switch (effort) {
    case Effort::kSync:
      return "synchronisations";
    case Effort::kHostLatency:
      return "messages in a host";
    case Effort::kHostOverhead:
      return "further messages in a host";
    case Effort::kHostBytes:
      return "bytes in a host";
    case Effort::kNetworkLatency:
      return "messages between hosts";
    case Effort::kNetworkOverhead:
      return "further messages between hosts";
    case Effort::kNetworkBytes:
      return "bytes between hosts";
    case Effort::kReducedBytes:
      return "bytes reduced";
    case Effort::kCopiedBytes:
      return "bytes copied";
  }
  return "?";
}

}  // namespace dlaunch
