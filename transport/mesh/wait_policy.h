// WaitPolicy: how a rank waits before it sleeps. A plain value.
//
// A flag between two cores takes a fraction of a microsecond, waking a sleeper tens of them. So it
// pays to look on for a while: without pause where every rank of the host has a core of its own;
// otherwise by giving up the core again and again, so that the rank that is waited for gets it.
#pragma once

#include <chrono>

namespace dlaunch {

struct WaitPolicy {
  /// How long to look without giving up the core.
  std::chrono::nanoseconds spin{0};
  /// How often to give it up (sched_yield) before sleeping.
  int yields = 0;

  /// For a host with `ranks` ranks and `cores` cores.
  static WaitPolicy of_host(int ranks, int cores) {
    if (ranks <= cores) return {.spin = std::chrono::microseconds(100), .yields = 0};
    return without_cores();
  }
  /// For a host with fewer cores than ranks.
  static WaitPolicy without_cores() { return {.spin = std::chrono::nanoseconds(0), .yields = 100}; }
  /// True where every rank has a core of its own.
  bool core_each() const { return spin > std::chrono::nanoseconds(0); }
};

}  // namespace dlaunch
