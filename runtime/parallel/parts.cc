#include "runtime/parallel/parts.h"

#include <vector>

namespace dlaunch {
namespace {

std::vector<std::size_t> part_sizes(const Communicator& world, FlatSpan span) {
  std::vector<std::size_t> sizes;
  for (const FlatSpan& part : even_parts(span, static_cast<std::size_t>(world.size())))
    sizes.push_back(part.size());
  return sizes;
}

/// Of the whole array; nothing on ranks that do not have it.
template <typename Float>
std::span<Float> cut(const Communicator& world, std::span<Float> whole, FlatSpan span) {
  return world.rank() == 0 ? whole.subspan(span.begin, span.size()) : std::span<Float>();
}

}  // namespace

Status gather_parts(Communicator& world, std::span<const FlatSpan> spans, const PartOf& part,
                    std::span<float> whole) {
  for (std::size_t i = 0; i < spans.size(); ++i)
    DLAUNCH_RETURN_IF_ERROR(
        world.gather(part(i), cut(world, whole, spans[i]), 0, part_sizes(world, spans[i])));
  return {};
}

Status scatter_parts(Communicator& world, std::span<const FlatSpan> spans,
                     std::span<const float> whole, const PartOf& part) {
  for (std::size_t i = 0; i < spans.size(); ++i)
    DLAUNCH_RETURN_IF_ERROR(
        world.scatter(cut(world, whole, spans[i]), part(i), 0, part_sizes(world, spans[i])));
  return {};
}

}  // namespace dlaunch
