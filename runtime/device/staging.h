// Staging: calls on device memory by way of pinned host memory and a host communicator. What no
// DevicePath does; the slowest way, and one that always works.
//
// A blocking call waits for the stream, on the host. A started one does not: when the device has
// copied the inputs, it starts the call of the host communicator; waiting for the Work waits for
// that, and then queues the copies of the outputs on the compute stream.
//
// Any thread; what is started on one stream is started in its order.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"

namespace dlaunch {

class StagedWork;

class Staging {
 public:
  Staging(std::shared_ptr<DeviceCore> core, int rank)
      : core_(std::move(core)), rank_(rank), gate_(std::make_shared<Gate>()) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// On the compute stream, by host.run().
  Status run(Communicator& host, const CollectiveCall& call);
  /// On `stream`, by host.start(). `host` must stay until close().
  Work start(Communicator& host, const CollectiveCall& call, DeviceStream& stream);

  /// Messages, by host.send() and its like. Sending waits for the compute stream.
  Status send(Communicator& host, ConstBuffer data, int peer, std::uint64_t tag);
  Status recv(Communicator& host, Buffer data, int peer, std::uint64_t tag, int* sender);
  Work start_send(Communicator& host, ConstBuffer data, int peer, std::uint64_t tag);
  Work start_recv(Communicator& host, Buffer data, int peer, std::uint64_t tag, int* sender);

  /// No call of a host communicator is started any more: what the device has not come to ends with
  /// kAborted.
  void close();

 private:
  // Between the device's thread, which starts calls and may do nothing else with the device, not
  // even by destroying something, and the end of the host communicator. What is in flight goes
  // while the thread is not within the gate, and by another thread.
  struct Gate {
    std::mutex mutex;
    bool closed = false;
  };

  Result<PinnedPool::Block> fetch(ConstBuffer data);
  void keep(const std::shared_ptr<StagedWork>& work);

  const std::shared_ptr<DeviceCore> core_;
  const int rank_;
  const std::shared_ptr<Gate> gate_;
  std::vector<std::shared_ptr<StagedWork>> in_flight_;  // their memory is in use; by gate_->mutex
};

}  // namespace dlaunch
