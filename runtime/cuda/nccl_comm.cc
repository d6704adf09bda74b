#include "runtime/cuda/nccl_comm.h"

#include <string>
#include <thread>

namespace dlaunch {
namespace {

constexpr std::chrono::seconds kLongestEnd{5};

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

Status nccl_status(ncclResult_t result, std::string_view function) {
  if (result == ncclSuccess || result == ncclInProgress) return Status();
  // Of a rank that is gone NCCL says only that the connection broke.
  const StatusCode code = result == ncclRemoteError ? StatusCode::kPeerLost : StatusCode::kIo;
  std::string text = std::string(function) + ": " + ncclGetErrorString(result);
  const char* const last = ncclGetLastError(nullptr);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  return Status(code, text);
}

Status NcclComm::gone() {
  return Status(StatusCode::kAborted, "the NCCL communicator was aborted");
}

Status NcclComm::init(const ncclUniqueId& id, int rank, int size, Deadline deadline) {
  const std::scoped_lock lock(mutex_);
  ncclConfig_t config = non_blocking();
  DLAUNCH_RETURN_IF_ERROR(nccl_status(ncclCommInitRankConfig(&comm_, size, id, rank, &config),
                                      "ncclCommInitRankConfig"));
  return settle("ncclCommInitRankConfig", deadline);
}

Status NcclComm::init_as(NcclComm& other, int rank, Deadline deadline) {
  const std::scoped_lock lock(mutex_, other.mutex_);
  ncclConfig_t config = non_blocking();
  DLAUNCH_RETURN_IF_ERROR(
      nccl_status(ncclCommSplit(other.comm_, 0, rank, &comm_, &config), "ncclCommSplit"));
  DLAUNCH_RETURN_IF_ERROR(other.settle("ncclCommSplit", deadline));
  return settle("ncclCommSplit", deadline);
}

// With the mutex.
Status NcclComm::settle(std::string_view name, Deadline deadline) {
  while (true) {
    ncclResult_t state = ncclSuccess;
    DLAUNCH_RETURN_IF_ERROR(
        nccl_status(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
    if (state != ncclInProgress) return nccl_status(state, name);
    if (aborting_) return gone();
    if (deadline.expired()) {
      return Status(StatusCode::kTimeout, std::string(name) + ": NCCL does not come to an end");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(5));
  }
}

Status NcclComm::check() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || comm_ == nullptr) return Status();  // who has it looks himself
  ncclResult_t state = ncclSuccess;
  DLAUNCH_RETURN_IF_ERROR(
      nccl_status(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
  return nccl_status(state, "NCCL");
}

void NcclComm::abort() {
  aborting_ = true;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || comm_ == nullptr) return;
  (void)ncclCommAbort(comm_);  // frees it too
  comm_ = nullptr;
}

void NcclComm::close() {
  if (comm_ == nullptr) return;
  ncclResult_t state = ncclCommFinalize(comm_);
  const Deadline deadline = Deadline::after(kLongestEnd);
  while (state == ncclInProgress && !deadline.expired()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
  }
  (void)(state == ncclSuccess ? ncclCommDestroy(comm_) : ncclCommAbort(comm_));
  comm_ = nullptr;
}

}  // namespace dlaunch
