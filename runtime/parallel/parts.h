// The way of what is sharded to rank 0 and back: each rank has its parts (even_parts) of a flat
// array, rank 0 for a while all of it. Blocking collectives, called by all ranks with the same
// spans.
#pragma once

#include <functional>
#include <span>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/bucket_plan.h"

namespace dlaunch {

/// This rank's part of spans[index]: as many elements as even_parts gives it.
using PartOf = std::function<std::span<float>(std::size_t index)>;

/// Copies everybody's parts into `whole`, which is read on rank 0 only.
Status gather_parts(Communicator& world, std::span<const FlatSpan> spans, const PartOf& part,
                    std::span<float> whole);
/// The inverse.
Status scatter_parts(Communicator& world, std::span<const FlatSpan> spans,
                     std::span<const float> whole, const PartOf& part);

}  // namespace dlaunch
