#include "runtime/cuda/nccl_path.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

#include "runtime/cuda/cuda_status.h"
#include "runtime/cuda/nccl_collectives.h"
#include "runtime/cuda/nccl_comm.h"
#include "runtime/device/agreement.h"

namespace dlaunch {
namespace {

class NcclPath final : public DevicePath {
 public:
  NcclPath(int rank, int size, int device, std::chrono::nanoseconds timeout)
      : rank_(rank), size_(size), device_(device), timeout_(timeout) {}
  ~NcclPath() override {
    const CurrentDevice current(device_);
    for (NcclComm& comm : comms_) comm.close();
  }

  Status connect(const ncclUniqueId& id) {
    const CurrentDevice current(device_);
    const Deadline deadline = Deadline::after(timeout_);
    DLAUNCH_RETURN_IF_ERROR(comms_[0].init(id, rank_, size_, deadline));
    for (std::size_t lane = 1; lane < kDeviceLanes; ++lane) {
      DLAUNCH_RETURN_IF_ERROR(comms_[lane].init_as(comms_[0], rank_, deadline));
    }
    return Status();
  }

  // Reductions by our kernels take the operands of all ranks at once.
  bool serves(const CollectiveCall& call) const override {
    return call.record == nullptr && static_cast<std::size_t>(size_) <= kMostOperands;
  }

  Status enqueue(const CollectiveCall& call, DeviceLane lane, DeviceStream& stream) override {
    const CurrentDevice current(device_);
    auto& of_cuda = static_cast<CudaStream&>(stream);  // all streams of a CudaDevice are
    return queue_by_nccl({.comm = comms_[static_cast<std::size_t>(lane)],
                          .stream = of_cuda,
                          .rank = rank_,
                          .size = size_,
                          .deadline = Deadline::after(timeout_)},
                         call);
  }

  Status check() override {
    for (NcclComm& comm : comms_) DLAUNCH_RETURN_IF_ERROR(comm.check());
    return Status();
  }
  void release() override {
    for (NcclComm& comm : comms_) comm.abort();
  }
  std::optional<int> awaited(DeviceLane /*lane*/) const override { return std::nullopt; }

 private:
  const int rank_;
  const int size_;
  const int device_;
  const std::chrono::nanoseconds timeout_;
  std::array<NcclComm, kDeviceLanes> comms_;
};

}  // namespace

Result<std::unique_ptr<DevicePath>> connect_nccl_path(Communicator& host, int device,
                                                      std::chrono::nanoseconds timeout) {
  ncclUniqueId id{};
  Status made;
  if (host.rank() == 0) made = nccl_status(ncclGetUniqueId(&id), "ncclGetUniqueId");
  DLAUNCH_RETURN_IF_ERROR(agree(host, made));
  DLAUNCH_RETURN_IF_ERROR(host.broadcast(Buffer(&id, sizeof id, DType::kU8), 0));
  auto path = std::make_unique<NcclPath>(host.rank(), host.size(), device, timeout);
  DLAUNCH_RETURN_IF_ERROR(path->connect(id));
  return std::unique_ptr<DevicePath>(std::move(path));
}

}  // namespace dlaunch
