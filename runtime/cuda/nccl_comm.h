// NcclComm: a non-blocking NCCL communicator, and the operations on it.
//
// One thread queues operations; check() and abort() may be called by another one meanwhile.
//
// The communicators of one GPU end together, in one NCCL group: to end one of them NCCL waits for
// what the device has been given before, where kernels of another one may stand that would wait for
// ever. In a group all of them are told to stop before one is waited for (NCCL 2.22 or newer).
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// kIo "ncclAllReduce: unhandled cuda error", or ok; "in progress" is no error.
Status nccl_status(ncclResult_t result, std::string_view function);

class NcclComm {
 public:
  NcclComm() = default;
  ~NcclComm() { close(std::span(this, 1)); }
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  Status init(const ncclUniqueId& id, int rank, int size, Deadline deadline);
  /// A duplicate of `other`. A collective of its ranks.
  Status init_as(NcclComm& other, int rank, Deadline deadline);

  /// Calls queue(comm), which makes NCCL calls and returns their first error, as one group, and
  /// waits until NCCL has queued them.
  template <typename Queue>
  Status group(std::string_view name, Deadline deadline, const Queue& queue) {
    std::unique_lock lock(mutex_, std::defer_lock);
    // Who aborts has it for long: until graphs that use the communicator are destroyed.
    while (!aborting_ && !lock.try_lock()) std::this_thread::yield();
    if (aborting_ || comm_ == nullptr) return gone();
    DLAUNCH_RETURN_IF_ERROR(nccl_status(ncclGroupStart(), "ncclGroupStart"));
    const ncclResult_t queued = queue(comm_);
    const ncclResult_t ended = ncclGroupEnd();
    DLAUNCH_RETURN_IF_ERROR(nccl_status(queued, name));
    DLAUNCH_RETURN_IF_ERROR(nccl_status(ended, name));
    return settle(name, deadline);
  }

  /// An error that NCCL has met in the background.
  Status check();
  /// Ends what is in flight, on all communicators of a GPU. While another thread is queueing on one
  /// of them, that gives up soon and this does nothing: call it again.
  static void abort(std::span<NcclComm> all);
  /// The end of all communicators of a GPU, in which no other thread takes part: waits some seconds
  /// for what is in flight.
  static void close(std::span<NcclComm> all);

 private:
  using Call = ncclResult_t (*)(ncclComm_t);

  static Status gone();
  static void end(std::span<NcclComm> all, Call how);
  /// One group with that call on each communicator that there is: the first error.
  static Status on_all(std::span<NcclComm> all, Call call, std::string_view name);
  Status settle(std::string_view name, Deadline deadline);

  std::mutex mutex_;  // held while the communicator is in use
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> aborting_{false};
};

}  // namespace dlaunch
