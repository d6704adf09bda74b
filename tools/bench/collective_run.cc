#include "tools/bench/collective_run.h"

#include <algorithm>
#include <numeric>

#include "tools/bench/typed_values.h"

namespace dlaunch::bench {
namespace {

bool is_divided(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter;
}

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}

bool is_in_place(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast;
}

}  // namespace

void CollectiveRun::Memory::allocate(Communicator& world, std::size_t bytes, bool shared) {
  if (shared) {
    shared_ = world.allocate(bytes).value_or_throw();
  } else {
    heap_.resize(bytes);
  }
}

std::span<std::byte> CollectiveRun::Memory::bytes() {
  return heap_.empty() ? shared_.bytes() : std::span(heap_);
}

CollectiveRun::CollectiveRun(Communicator& world, const Options& options, Algorithm algorithm,
                             std::size_t count)
    : world_(world), count_(count) {
  const CollectiveKind kind = options.kind;
  const auto ranks = static_cast<std::size_t>(world.size());
  std::size_t input_count = count;
  std::size_t output_count = count;
  if (is_divided(kind)) {
    const std::size_t part = std::max<std::size_t>(count / ranks, 1);
    count_ = input_count = output_count = part * ranks;
    if (kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather) input_count = part;
    if (kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kScatter) {
      output_count = part;
    }
  }
  const std::size_t element = size_of(options.dtype);
  call_.kind = kind;
  if (kind == CollectiveKind::kBarrier) return;
  input_.allocate(world, input_count * element, options.allocated);
  if (!is_in_place(kind)) output_.allocate(world, output_count * element, options.allocated);
  Memory& result = is_in_place(kind) ? input_ : output_;
  call_.input = {input_.bytes().data(), input_count, options.dtype};
  call_.output = {result.bytes().data(), output_count, options.dtype};
  call_.op = options.op;
  if (has_root(kind)) call_.root = options.root;
  call_.algorithm = algorithm;
  call_.order = options.order;
}

void CollectiveRun::prepare(std::uint64_t repetition) {
  if (call_.kind == CollectiveKind::kBarrier) return;
  if (call_.kind == CollectiveKind::kBroadcast && world_.rank() != call_.root) {
    clear();
    return;
  }
  fill({input_.bytes().data(), call_.input.count, call_.input.dtype}, world_.rank(), repetition);
  std::ranges::fill(output_.bytes(), std::byte{0});
}

void CollectiveRun::clear() {
  std::ranges::fill(input_.bytes(), std::byte{0});
}

void CollectiveRun::run() {
  throw_if_error(world_.run(call_));
}

bool CollectiveRun::receives() const {
  const bool only_root =
      call_.kind == CollectiveKind::kReduce || call_.kind == CollectiveKind::kGather;
  return call_.kind != CollectiveKind::kBarrier && (!only_root || world_.rank() == call_.root);
}

double CollectiveRun::error(std::uint64_t repetition) const {
  if (!receives()) return 0;
  const ConstBuffer result = call_.output;
  const auto own = static_cast<std::size_t>(world_.rank());
  std::vector<int> all(static_cast<std::size_t>(world_.size()));
  std::iota(all.begin(), all.end(), 0);
  switch (call_.kind) {
    case CollectiveKind::kBroadcast:
      return error_of(result, {.ranks = {call_.root}}, repetition);
    case CollectiveKind::kScatter:
      return error_of(result, {.ranks = {call_.root}, .first_element = own * result.count},
                      repetition);
    case CollectiveKind::kReduceScatter:
      return error_of(result, {.ranks = all, .first_element = own * result.count, .op = call_.op},
                      repetition);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
    case CollectiveKind::kAllToAll: {
      const std::size_t part = result.count / all.size();
      const std::size_t first = call_.kind == CollectiveKind::kAllToAll ? own * part : 0;
      double worst = 0;
      for (const int rank : all) {
        const auto* data = static_cast<const std::byte*>(result.data) +
                           static_cast<std::size_t>(rank) * part * size_of(result.dtype);
        worst = std::max(worst, error_of({data, part, result.dtype},
                                         {.ranks = {rank}, .first_element = first}, repetition));
      }
      return worst;
    }
    default:
      return error_of(result, {.ranks = all, .op = call_.op}, repetition);
  }
}

double bus_factor(CollectiveKind kind, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (kind == CollectiveKind::kAllReduce) return 2 * others;
  return is_divided(kind) ? others : 1;
}

}  // namespace dlaunch::bench
