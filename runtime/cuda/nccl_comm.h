// NcclComm: a non-blocking NCCL communicator, and the operations on it.
//
// One thread queues operations; check() and abort() may be called by another one meanwhile.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string_view>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// kIo "ncclAllReduce: unhandled cuda error", or ok; "in progress" is no error.
Status nccl_status(ncclResult_t result, std::string_view function);

class NcclComm {
 public:
  NcclComm() = default;
  ~NcclComm() { close(); }
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  Status init(const ncclUniqueId& id, int rank, int size, Deadline deadline);
  /// A duplicate of `other`. A collective of its ranks.
  Status init_as(NcclComm& other, int rank, Deadline deadline);

  /// Calls queue(comm), which makes NCCL calls and returns their first error, as one group, and
  /// waits until NCCL has queued them.
  template <typename Queue>
  Status group(std::string_view name, Deadline deadline, const Queue& queue) {
    const std::scoped_lock lock(mutex_);
    if (comm_ == nullptr) return gone();
    DLAUNCH_RETURN_IF_ERROR(nccl_status(ncclGroupStart(), "ncclGroupStart"));
    const ncclResult_t queued = queue(comm_);
    const ncclResult_t ended = ncclGroupEnd();
    DLAUNCH_RETURN_IF_ERROR(nccl_status(queued, name));
    DLAUNCH_RETURN_IF_ERROR(nccl_status(ended, name));
    return settle(name, deadline);
  }

  /// An error that NCCL has met in the background.
  Status check();
  /// Ends what is in flight. If another thread is queueing, that gives up soon and this does
  /// nothing: call it again.
  void abort();
  /// The end, in which no other thread takes part: waits some seconds for what is in flight.
  void close();

 private:
  static Status gone();
  Status settle(std::string_view name, Deadline deadline);

  std::mutex mutex_;  // held while the communicator is in use
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> aborting_{false};
};

}  // namespace dlaunch
