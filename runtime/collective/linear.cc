#include "runtime/collective/linear.h"

namespace dlaunch {

Plan linear_scatter(int rank, const Partition& parts, int root) {
  const Slice own{Region::kOutput, 0, parts.count(rank)};
  if (rank != root) return {.steps = {{.recvs = {{.peer = root, .into = own}}}}};
  PlanStep step{.copies = {{parts.slice(Region::kInput, rank), own}}};
  for (int peer = 0; peer < parts.parts(); ++peer) {
    if (peer != rank) step.sends.push_back({peer, parts.slice(Region::kInput, peer)});
  }
  return {.steps = {std::move(step)}};
}

Plan linear_gather(int rank, const Partition& parts, int root) {
  const Slice own{Region::kInput, 0, parts.count(rank)};
  if (rank != root) return {.steps = {{.sends = {{root, own}}}}};
  PlanStep step{.copies = {{own, parts.slice(Region::kOutput, rank)}}};
  for (int peer = 0; peer < parts.parts(); ++peer) {
    if (peer != rank) {
      step.recvs.push_back({.peer = peer, .into = parts.slice(Region::kOutput, peer)});
    }
  }
  return {.steps = {std::move(step)}};
}

Plan send_message(int peer, std::size_t count) {
  return {.steps = {{.sends = {{peer, {Region::kInput, 0, count}}}}}};
}

Plan recv_message(int peer, std::size_t count) {
  return {.steps = {{.recvs = {{.peer = peer, .into = {Region::kOutput, 0, count}}}}}};
}

}  // namespace dlaunch
