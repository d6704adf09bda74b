#include "runtime/device/staging.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/device/staged_work.h"

namespace dlaunch {
namespace {

Segments one(void* memory, std::size_t bytes) {
  Segments segments;
  segments.add(memory, bytes);
  return segments;
}

}  // namespace

Status Staging::run(Communicator& host, const CollectiveCall& call) {
  DeviceStream& stream = core_->device->compute();
  if (stream.capturing()) return not_while_capturing();
  auto work = StagedWork::of_call(core_, call, rank_);
  DLAUNCH_RETURN_IF_ERROR(work.status());
  DLAUNCH_RETURN_IF_ERROR((*work)->load(stream));
  DLAUNCH_RETURN_IF_ERROR(core_->wait_for((*work)->loaded()));
  DLAUNCH_RETURN_IF_ERROR(host.run((*work)->host_call()));
  return (*work)->store(stream);
}

Work Staging::start(Communicator& host, const CollectiveCall& call, DeviceStream& stream) {
  if (core_->device->compute().capturing()) return Work::finished(not_while_capturing());
  auto made = StagedWork::of_call(core_, call, rank_);
  if (!made.ok()) return Work::finished(made.status());
  const std::shared_ptr<StagedWork> work = *made;
  if (Status loaded = work->load(stream); !loaded.ok()) return Work::finished(std::move(loaded));
  keep(work);
  Status queued = stream.call([work = work.get(), gate = gate_, &host] {
    const std::scoped_lock lock(gate->mutex);
    if (!gate->closed) work->begin(host.start(work->host_call()));
  });
  if (!queued.ok()) work->give_up(std::move(queued));
  return Work(work);
}

Result<PinnedPool::Block> Staging::fetch(ConstBuffer data) {
  DeviceStream& stream = core_->device->compute();
  if (stream.capturing()) return not_while_capturing();
  auto block = core_->pool.take(data.bytes());
  DLAUNCH_RETURN_IF_ERROR(block.status());
  DLAUNCH_RETURN_IF_ERROR(stream.copy(block->data(), data.data, data.bytes()));
  auto fetched = stream.record();
  DLAUNCH_RETURN_IF_ERROR(fetched.status());
  DLAUNCH_RETURN_IF_ERROR(core_->wait_for(**fetched));
  return block;
}

Status Staging::send(Communicator& host, ConstBuffer data, int peer, std::uint64_t tag) {
  auto block = fetch(data);
  DLAUNCH_RETURN_IF_ERROR(block.status());
  Status sent = host.send(ConstBuffer(block->data(), data.count, data.dtype), peer, tag);
  core_->pool.give(*std::move(block), nullptr);
  return sent;
}

Status Staging::recv(Communicator& host, Buffer data, int peer, std::uint64_t tag, int* sender) {
  DeviceStream& stream = core_->device->compute();
  if (stream.capturing()) return not_while_capturing();
  auto block = core_->pool.take(data.bytes());
  DLAUNCH_RETURN_IF_ERROR(block.status());
  DLAUNCH_RETURN_IF_ERROR(
      host.recv(Buffer(block->data(), data.count, data.dtype), peer, tag, sender));
  StagedWork work(core_, *std::move(block), one(data.data, data.bytes()));
  return work.store(stream);
}

Work Staging::start_send(Communicator& host, ConstBuffer data, int peer, std::uint64_t tag) {
  auto block = fetch(data);
  if (!block.ok()) return Work::finished(block.status());
  const ConstBuffer staged(block->data(), data.count, data.dtype);
  auto work = std::make_shared<StagedWork>(core_, *std::move(block), Segments());
  work->begin(host.start_send(staged, peer, tag));
  keep(work);
  return Work(std::move(work));
}

Work Staging::start_recv(Communicator& host, Buffer data, int peer, std::uint64_t tag,
                         int* sender) {
  if (core_->device->compute().capturing()) return Work::finished(not_while_capturing());
  auto block = core_->pool.take(data.bytes());
  if (!block.ok()) return Work::finished(block.status());
  const Buffer staged(block->data(), data.count, data.dtype);
  auto work = std::make_shared<StagedWork>(core_, *std::move(block), one(data.data, data.bytes()));
  work->begin(host.start_recv(staged, peer, tag, sender));
  keep(work);
  return Work(std::move(work));
}

// The host communicator uses the memory of a call until it has ended, whether anyone waits or not.
void Staging::keep(const std::shared_ptr<StagedWork>& work) {
  std::vector<std::shared_ptr<StagedWork>>
      ended;  // go without the lock: they may wait for the device
  const std::scoped_lock lock(gate_->mutex);
  const auto first = std::stable_partition(in_flight_.begin(), in_flight_.end(),
                                           [](const auto& earlier) { return !earlier->done(); });
  std::move(first, in_flight_.end(), std::back_inserter(ended));
  in_flight_.erase(first, in_flight_.end());
  in_flight_.push_back(work);
}

void Staging::close() {
  const std::scoped_lock lock(gate_->mutex);
  gate_->closed = true;
  for (const auto& work : in_flight_)
    work->give_up(Status(StatusCode::kAborted, "the communicator was destroyed"));
}

}  // namespace dlaunch
