#include "runtime/parallel/bucket_plan.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

constexpr std::size_t kCacheLine = 64 / sizeof(float);

/// Ranges that arrive one after the other, as buckets of neighbours: the one that is full first
/// comes first.
void append_runs(std::span<const GradientRange> ranges, std::span<const std::size_t> group,
                 std::vector<Bucket>& buckets) {
  struct Arrival {
    std::size_t range;
    std::size_t position;
  };
  std::vector<Arrival> sorted;
  for (std::size_t i = 0; i < group.size(); ++i) sorted.push_back({group[i], i});
  std::ranges::sort(sorted, {}, &Arrival::range);

  struct Run {
    Bucket bucket;
    std::size_t full_at = 0;
  };
  std::vector<Run> runs;
  for (const auto& [index, position] : sorted) {
    const GradientRange& range = ranges[index];
    if (runs.empty() || runs.back().bucket.ranges.back() + 1 != index)
      runs.push_back({.bucket = {.span = {range.offset, range.offset}, .ranges = {}}});
    Run& run = runs.back();
    run.bucket.span.end = range.offset + range.count;
    run.bucket.ranges.push_back(index);
    run.full_at = std::max(run.full_at, position);
  }
  std::ranges::sort(runs, {}, &Run::full_at);
  for (Run& run : runs) buckets.push_back(std::move(run.bucket));
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const GradientRange> ranges,
                                 std::span<const std::size_t> order, const BucketLimits& limits) {
  std::vector<Bucket> buckets;
  std::size_t begin = 0;
  std::size_t bytes = 0;
  std::size_t limit = limits.first_bytes;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t more = ranges[order[i]].count * sizeof(float);
    if (i > begin && bytes + more > limit) {
      append_runs(ranges, order.subspan(begin, i - begin), buckets);
      begin = i;
      bytes = 0;
      limit = limits.bytes;
    }
    bytes += more;
  }
  append_runs(ranges, order.subspan(begin), buckets);
  return buckets;
}

std::vector<FlatSpan> even_parts(FlatSpan span, std::size_t parts) {
  const std::size_t lines = (span.size() + kCacheLine - 1) / kCacheLine;
  const std::size_t most = (lines + parts - 1) / parts * kCacheLine;
  std::vector<FlatSpan> result;
  std::size_t begin = span.begin;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t end = std::min(span.end, begin + most);
    result.push_back({begin, end});
    begin = end;
  }
  return result;
}

bool is_order_of(std::span<const std::size_t> order, std::size_t ranges) {
  std::vector<std::size_t> sorted(order.begin(), order.end());
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != i) return false;
  return sorted.size() == ranges;
}

}  // namespace dlaunch
