#include "runtime/device/staged_work.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/comm/call_signature.h"
#include "runtime/device/call_buffers.h"

namespace dlaunch {
namespace {

// How often a wait for the device looks whether it or the communicator has failed.
constexpr std::chrono::nanoseconds kFailureLook = std::chrono::milliseconds(20);

}  // namespace

Status not_while_capturing() {
  return Status(StatusCode::kUnavailable,
                "this call goes through host memory and cannot be part of a CUDA graph");
}

Result<std::shared_ptr<StagedWork>> StagedWork::of_call(const std::shared_ptr<DeviceCore>& core,
                                                        const CollectiveCall& call, int rank) {
  auto work = std::make_shared<StagedWork>(core, PinnedPool::Block(), Segments());
  work->call_ = call;
  work->counts_.assign(call.counts.begin(), call.counts.end());
  work->recv_counts_.assign(call.recv_counts.begin(), call.recv_counts.end());
  work->call_.counts = work->counts_;
  work->call_.recv_counts = work->recv_counts_;
  if (call.record != nullptr) {
    work->record_ = *call.record;
    work->call_.record = &work->record_;
  }
  const DType dtype = dtype_of_call(call);
  const bool in_place = !call.pieces.empty() || call.input.data == call.output.data;
  const bool reads = uses_input(call, rank);
  const bool writes = uses_output(call, rank);
  if (reads) work->inputs_ = Segments::inputs(call);
  if (writes) work->outputs_ = Segments::outputs(call);
  work->input_bytes_ = work->inputs_.bytes();
  work->output_bytes_ = work->outputs_.bytes();
  if (reads || in_place) {
    auto block = core->pool.take(std::max(work->input_bytes_, work->output_bytes_));
    if (!block.ok()) return block.status();
    work->input_ = *std::move(block);
  }
  if (in_place) {
    work->output_ = work->input_;
  } else if (writes) {
    auto block = core->pool.take(work->output_bytes_);
    if (!block.ok()) return block.status();
    work->output_ = *std::move(block);
  }
  if (!call.pieces.empty()) {  // one vector here
    work->call_.pieces = {};
    const std::size_t count = work->output_bytes_ / size_of(dtype);
    work->call_.input = ConstBuffer(nullptr, count, dtype);
    work->call_.output = Buffer(nullptr, count, dtype);
  }
  work->call_.input.data = work->input_.data();
  work->call_.output.data = work->output_.data();
  return work;
}

StagedWork::StagedWork(std::shared_ptr<DeviceCore> core, PinnedPool::Block block, Segments output)
    : core_(std::move(core)),
      outputs_(std::move(output)),
      output_bytes_(outputs_.bytes()),
      input_(block),
      output_(std::move(block)) {}

Status StagedWork::load(DeviceStream& stream) {
  const Status copied =
      inputs_.for_each(0, input_bytes_, [&](std::byte* from, std::size_t at, std::size_t bytes) {
        return stream.copy(input_.data() + at, from, bytes);
      });
  DLAUNCH_RETURN_IF_ERROR(copied);
  auto loaded = stream.record();
  DLAUNCH_RETURN_IF_ERROR(loaded.status());
  loaded_ = *std::move(loaded);
  return Status();
}

Status StagedWork::store(DeviceStream& stream) {
  const Status copied =
      outputs_.for_each(0, output_bytes_, [&](std::byte* to, std::size_t at, std::size_t bytes) {
        return stream.copy(to, output_.data() + at, bytes);
      });
  DLAUNCH_RETURN_IF_ERROR(copied);
  auto event = stream.record();
  DLAUNCH_RETURN_IF_ERROR(event.status());
  if (output_.memory != nullptr && output_.memory != input_.memory) {
    core_->pool.give(std::exchange(output_, {}), *event);
  }
  if (input_.memory != nullptr) core_->pool.give(std::exchange(input_, {}), *event);
  output_ = {};
  return Status();
}

void StagedWork::begin(Work host_work) {
  {
    const std::scoped_lock lock(mutex_);
    host_work_ = std::move(host_work);
  }
  changed_.notify_all();
}

void StagedWork::give_up(Status why) {
  {
    const std::scoped_lock lock(mutex_);
    if (host_work_.has_value()) return;
    host_work_ = Work::finished(std::move(why));
  }
  changed_.notify_all();
}

bool StagedWork::done() const {
  const std::scoped_lock lock(mutex_);
  return host_work_.has_value() && host_work_->done();
}

std::chrono::steady_clock::time_point StagedWork::ended() const {
  const std::scoped_lock lock(mutex_);
  return host_work_->ended();
}

Status StagedWork::wait(std::chrono::nanoseconds timeout) {
  if (core_->device->compute().capturing()) return not_while_capturing();
  const Deadline deadline = Deadline::after(std::min(timeout, core_->timeout.load()));
  DLAUNCH_RETURN_IF_ERROR(wait_for_begin(deadline));
  Work host_work = *host_work_;  // stays what it is
  const Status host =
      host_work.wait(timeout == std::chrono::nanoseconds::max() ? timeout : deadline.remaining());
  // It has failed there: what goes wrong in one memory, is over in both.
  if (!host.ok() && host_work.done()) core_->failure.set(host);
  DLAUNCH_RETURN_IF_ERROR(host);
  const std::scoped_lock storing(storing_);
  if (!stored_.has_value()) stored_ = store(core_->device->compute());
  return *stored_;
}

// Looks without the lock, which the device's thread may be waiting for.
Status StagedWork::wait_for_begin(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const auto has_begun = [this] { return host_work_.has_value(); };
  while (!changed_.wait_for(lock, std::min(kFailureLook, deadline.remaining()), has_begun)) {
    lock.unlock();
    DLAUNCH_RETURN_IF_ERROR(look_at_device());
    if (deadline.expired()) {
      return Status(StatusCode::kTimeout, "the device has not come to this call in time");
    }
    lock.lock();
  }
  return Status();
}

// A device that has failed calls nobody any more; its events tell.
Status StagedWork::look_at_device() const {
  if (core_->failure.failed()) return core_->failure.status();
  if (loaded_ == nullptr) return Status();
  const Result<bool> loaded = loaded_->done();
  if (loaded.ok()) return Status();
  Status why = loaded.status().within(std::string(to_string(call_.kind)));
  core_->failure.set(why);
  return why;
}

}  // namespace dlaunch
