// Threads beside OpenMP's.
#pragma once

#include <thread>
#include <utility>

#include "runtime/base/start_thread.h"

namespace dlaunch::nn {

/// Lets this thread run on all of OpenMP's places. Where OpenMP binds its threads (OMP_PROC_BIND,
/// OMP_PLACES), the main thread is bound to the first place before main(), and what it starts stays
/// there with it, however many there are.
void leave_place();

/// As start_thread(), of a thread that works beside the loops of the one that starts it.
template <typename Body>
std::thread start_unbound_thread(Body body) {
  return start_thread([body = std::move(body)]() mutable {
    leave_place();
    body();
  });
}

}  // namespace dlaunch::nn
