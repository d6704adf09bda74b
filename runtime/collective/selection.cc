#include "runtime/collective/selection.h"

#include <bit>

namespace dlaunch {

double ring_seconds(const CostModel& cost, std::size_t bytes, int ranks) {
  const double p = ranks;
  const double n = static_cast<double>(bytes);
  return 2 * (p - 1) * cost.message_seconds + 2 * (p - 1) / p * n * cost.transfer_seconds_per_byte +
         (p - 1) / p * n * cost.reduce_seconds_per_byte;
}

double butterfly_seconds(const CostModel& cost, std::size_t bytes, int ranks) {
  const auto p = static_cast<unsigned>(ranks);
  const double n = static_cast<double>(bytes);
  const double exchange = cost.message_seconds + n * cost.transfer_seconds_per_byte;
  const double reduction = n * cost.reduce_seconds_per_byte;
  const int exchanges = std::bit_width(std::bit_floor(p)) - 1;
  const bool folds =
      !std::has_single_bit(p);  // one message and reduction before, one message after
  return exchanges * (exchange + reduction) + (folds ? 2 * exchange + reduction : 0.0);
}

Algorithm choose_all_reduce(std::size_t bytes, int ranks, const CostModel& cost) {
  return butterfly_seconds(cost, bytes, ranks) <= ring_seconds(cost, bytes, ranks)
             ? Algorithm::kButterfly
             : Algorithm::kRing;
}

}  // namespace dlaunch
