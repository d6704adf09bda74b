#include "runtime/cuda/nccl_comm.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch {
namespace {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0), "communicators end in groups");

constexpr std::chrono::seconds kLongestEnd{5};
// Most calls settle within some microseconds, and the shortest sleep takes nearly a hundred.
constexpr std::chrono::microseconds kUsualSettling{200};

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

// With the mutex. Others, as NCCL's own thread, may need the core.
Status NcclComm::settle(std::string_view name, Deadline deadline) {
  const Deadline usual = Deadline::after(kUsualSettling);
  while (true) {
    ncclResult_t state = ncclSuccess;
    DLAUNCH_RETURN_IF_ERROR(
        nccl_status(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
    if (state != ncclInProgress) return nccl_status(state, name);
    if (aborting_) return gone();
    if (deadline.expired()) {
      return Status(StatusCode::kTimeout, std::string(name) + ": NCCL does not come to an end");
    }
    if (usual.expired()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else {
      std::this_thread::yield();
    }
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

void NcclComm::abort(std::span<NcclComm> all) {
  std::vector<std::unique_lock<std::mutex>> locks;
  for (NcclComm& comm : all) comm.aborting_ = true;
  for (NcclComm& comm : all) {
    locks.emplace_back(comm.mutex_, std::try_to_lock);
    if (!locks.back().owns_lock()) return;
  }
  end(all, ncclCommAbort);
}

void NcclComm::close(std::span<NcclComm> all) {
  // NCCL up to 2.26 has one job in the background of a thread: one that is begun while another
  // one's still runs would disturb it.
  bool orderly = on_all(all, ncclCommFinalize, "ncclCommFinalize").ok();
  const Deadline deadline = Deadline::after(kLongestEnd);
  for (NcclComm& comm : all) {
    if (comm.comm_ == nullptr) continue;
    orderly = orderly && comm.settle("ncclCommFinalize", deadline).ok();
  }
  end(all, orderly ? ncclCommDestroy : ncclCommAbort);
}

// `how` frees them too.
void NcclComm::end(std::span<NcclComm> all, Call how) {
  (void)on_all(all, how, "the end of NCCL");
  for (NcclComm& comm : all) comm.comm_ = nullptr;
}

Status NcclComm::on_all(std::span<NcclComm> all, Call call, std::string_view name) {
  if (std::ranges::all_of(all, [](const NcclComm& comm) { return comm.comm_ == nullptr; }))
    return Status();
  Status status = nccl_status(ncclGroupStart(), "ncclGroupStart");
  for (const NcclComm& comm : all) {
    if (comm.comm_ == nullptr) continue;
    Status called = nccl_status(call(comm.comm_), name);
    if (status.ok()) status = std::move(called);
  }
  Status ended = nccl_status(ncclGroupEnd(), name);
  return status.ok() ? ended : status;
}

}  // namespace dlaunch
