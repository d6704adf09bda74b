#include "runtime/cuda/nccl_path.h"

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/cuda/cuda_status.h"
#include "runtime/cuda/nccl_collectives.h"
#include "runtime/cuda/nccl_comm.h"
#include "runtime/cuda/nccl_rules.h"
#include "runtime/device/agreement.h"
#include "runtime/device/lane_scratch.h"

namespace dlaunch {
namespace {

class NcclPath final : public DevicePath {
 public:
  NcclPath(int rank, int size, Device& device, int number, std::chrono::nanoseconds timeout)
      : rank_(rank), size_(size), device_(number), timeout_(timeout) {
    for (std::size_t i = 0; i < 2 * kDeviceLanes; ++i) scratch_.emplace_back(device);
  }
  ~NcclPath() override {
    const CurrentDevice current(device_);
    NcclComm::close(comms_);
  }

  // In half of the time: a rank that cannot connect waits for those that still try, in a collective
  // of the host, and then all take another path.
  Status connect(const ncclUniqueId& id) {
    const CurrentDevice current(device_);
    const Deadline deadline = Deadline::after(timeout_ / 2);
    DLAUNCH_RETURN_IF_ERROR(comms_[0].init(id, rank_, size_, deadline));
    for (std::size_t lane = 1; lane < kDeviceLanes; ++lane) {
      DLAUNCH_RETURN_IF_ERROR(comms_[lane].init_as(comms_[0], rank_, deadline));
    }
    return Status();
  }

  bool serves(const CollectiveCall& call) const override {
    return nccl_serves(call, static_cast<std::size_t>(size_));
  }

  Status enqueue(const CollectiveCall& call, DeviceLane lane, DeviceStream& stream) override {
    const CurrentDevice current(device_);
    const auto index = static_cast<std::size_t>(lane);
    return queue_by_nccl({.comm = comms_[index],
                          .stream = stream,
                          .scratch = scratch_[2 * index + (stream.capturing() ? 1 : 0)],
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
    const CurrentDevice current(device_);
    NcclComm::abort(comms_);
  }
  std::optional<int> awaited(DeviceLane /*lane*/) const override { return std::nullopt; }

 private:
  const int rank_;
  const int size_;
  const int device_;
  const std::chrono::nanoseconds timeout_;
  std::array<NcclComm, kDeviceLanes> comms_;
  // Of each lane two: what is recorded may be repeated while the lane's stream is at work.
  std::vector<LaneScratch> scratch_;
};

}  // namespace

Result<std::unique_ptr<DevicePath>> connect_nccl_path(Communicator& host, Device& device,
                                                      int number,
                                                      std::chrono::nanoseconds timeout) {
  ncclUniqueId id{};
  Status made;
  if (host.rank() == 0) made = nccl_status(ncclGetUniqueId(&id), "ncclGetUniqueId");
  DLAUNCH_RETURN_IF_ERROR(agree(host, made));
  DLAUNCH_RETURN_IF_ERROR(host.broadcast(Buffer(&id, sizeof id, DType::kU8), 0));
  auto path = std::make_unique<NcclPath>(host.rank(), host.size(), device, number, timeout);
  DLAUNCH_RETURN_IF_ERROR(path->connect(id));
  return std::unique_ptr<DevicePath>(std::move(path));
}

}  // namespace dlaunch
