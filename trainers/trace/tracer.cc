#include "trainers/trace/tracer.h"

namespace dlaunch {

std::uint32_t Tracer::name(std::string_view text) {
  const auto [place, is_new] =
      numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(names_.size()));
  if (is_new) names_.emplace_back(text);
  return place->second;
}

void Tracer::add(const TraceEvent& event) {
  if (events_.size() < most_events_)
    events_.push_back(event);
  else
    ++dropped_;
}

void Tracer::add(const CommunicationSpan& span) {
  const TraceKind kind = span.lane == CallLane::kBlocking ? TraceKind::kBlocking
                         : span.lane == CallLane::kNormal ? TraceKind::kNormal
                                                          : TraceKind::kHigh;
  add({.begin = span.begin,
       .end = span.end,
       .kind = kind,
       .name = name(to_string(span.kind)),
       .sequence = span.sequence,
       .bytes = span.bytes});
}

}  // namespace dlaunch
