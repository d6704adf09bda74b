#include "runtime/device/device_communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/call_signature.h"
#include "runtime/comm/validation.h"
#include "runtime/device/abandon.h"
#include "runtime/device/agreement.h"
#include "runtime/device/call_buffers.h"
#include "runtime/device/device_core.h"
#include "runtime/device/device_watch.h"
#include "runtime/device/device_work.h"
#include "runtime/device/staging.h"

namespace dlaunch {
namespace {

constexpr std::chrono::nanoseconds kLongestTimeout = std::chrono::hours(24 * 365);

class DeviceCommunicator final : public DeviceWorld {
 public:
  DeviceCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<Device> device,
                     DeviceCommunicatorOptions options)
      : options_(std::move(options)),
        core_(std::make_shared<DeviceCore>(std::move(device), options_.timeout)),
        staging_(core_, host->rank()),
        host_(std::move(host)) {}

  ~DeviceCommunicator() override {
    const bool drained = watch_ == nullptr || watch_->drain();
    staging_.close();
    watch_.reset();
    if (!drained) abandon(std::shared_ptr<DevicePath>(std::move(path_)));
  }

  /// Connects everything. A collective of the host communicator's ranks.
  Status connect();

  DevicePathKind path() const override { return path_kind_; }
  const std::string& reason() const override { return reason_; }
  const std::string& why_not_recorded() const override { return why_not_recorded_; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  Status run(const CollectiveCall& call) override {
    const Result<bool> device = on_device_memory(call);
    DLAUNCH_RETURN_IF_ERROR(device.status());
    if (!*device) return noted(host_->run(call));
    const std::scoped_lock lock(mutexes_[index(DeviceLane::kBlocking)]);
    if (core_->failure.failed()) return core_->failed_earlier();
    if (!by_path(call)) return noted(staging_.run(*host_, call));
    return noted(enqueue(call, DeviceLane::kBlocking, core_->device->compute()).status());
  }

  Work start(const CollectiveCall& call) override {
    const Result<bool> device = on_device_memory(call);
    if (!device.ok()) return Work::finished(device.status());
    if (!*device) return host_->start(call);
    const DeviceLane lane =
        call.priority == Priority::kHigh ? DeviceLane::kHigh : DeviceLane::kAsync;
    const std::scoped_lock lock(mutexes_[index(lane)]);
    if (core_->failure.failed()) return Work::finished(core_->failed_earlier());
    Result<Work> work = start_on(call, lane);
    if (work.ok()) return *std::move(work);
    return Work::finished(noted(work.status()));
  }

  Status repeat(const std::function<void()>& launch) override {
    const std::scoped_lock lock(mutexes_[index(DeviceLane::kBlocking)]);
    if (core_->failure.failed()) return core_->failed_earlier();
    DeviceStream& compute = core_->device->compute();
    auto begun = compute.record();
    DLAUNCH_RETURN_IF_ERROR(begun.status());
    launch();
    auto ended = compute.record();
    DLAUNCH_RETURN_IF_ERROR(ended.status());
    watch_->add(DeviceLane::kBlocking, {.sequence = ++repeats_,
                                        .begun = *std::move(begun),
                                        .ended = *std::move(ended),
                                        .end_time = std::make_shared<EndTime>()});
    return Status();
  }

  void forget_recordings() override { watch_->keep_memory(false); }

  Status send(ConstBuffer data, int peer, std::uint64_t tag) override {
    DLAUNCH_RETURN_IF_ERROR(validate_send(data, peer, size()));
    return message(
        data, "send", [&] { return host_->send(data, peer, tag); },
        [&] { return staging_.send(*host_, data, peer, tag); });
  }
  Status recv(Buffer data, int peer, std::uint64_t tag, int* sender) override {
    DLAUNCH_RETURN_IF_ERROR(validate_recv(data, peer, size()));
    return message(
        data, "recv", [&] { return host_->recv(data, peer, tag, sender); },
        [&] { return staging_.recv(*host_, data, peer, tag, sender); });
  }
  Work start_send(ConstBuffer data, int peer, std::uint64_t tag) override {
    if (Status invalid = validate_send(data, peer, size()); !invalid.ok()) {
      return Work::finished(std::move(invalid));
    }
    return start_message(
        data, "send", [&] { return host_->start_send(data, peer, tag); },
        [&] { return staging_.start_send(*host_, data, peer, tag); });
  }
  Work start_recv(Buffer data, int peer, std::uint64_t tag, int* sender) override {
    if (Status invalid = validate_recv(data, peer, size()); !invalid.ok()) {
      return Work::finished(std::move(invalid));
    }
    return start_message(
        data, "recv", [&] { return host_->start_recv(data, peer, tag, sender); },
        [&] { return staging_.start_recv(*host_, data, peer, tag, sender); });
  }

  Result<std::unique_ptr<Communicator>> split(int color, int key) override {
    auto part = host_->split(color, key);
    if (!part.ok() || *part == nullptr) return part;
    DeviceCommunicatorOptions options = options_;
    options.timeout = core_->timeout;
    auto made = make_device_communicator(*std::move(part), core_->device, options);
    DLAUNCH_RETURN_IF_ERROR(made.status());
    return std::unique_ptr<Communicator>(*std::move(made));
  }

  Result<SharedMemory> allocate(std::size_t bytes) override { return host_->allocate(bytes); }

  void set_timeout(std::chrono::nanoseconds timeout) override {
    core_->timeout = std::clamp(timeout, std::chrono::nanoseconds(0), kLongestTimeout);
    host_->set_timeout(timeout);
    staged_->set_timeout(timeout);
  }
  void set_reduce_order(ReduceOrder order) override { host_->set_reduce_order(order); }
  ReduceOrder reduce_order() const override { return host_->reduce_order(); }

  void abort(Status why) override {
    if (why.ok()) why = Status(StatusCode::kAborted, "the communicator was aborted");
    watch_->fail(why);
  }

 private:
  static std::size_t index(DeviceLane lane) { return static_cast<std::size_t>(lane); }

  Status choose_path();
  Status try_path(DevicePathKind kind, std::span<const DeviceFacts> facts);
  Status find_out_whether_calls_are_recorded();

  Result<bool> on_device_memory(const CollectiveCall& call) const {
    DLAUNCH_RETURN_IF_ERROR(validate(call, rank(), size()));
    Result<bool> device = on_device(call, rank(), size(), *core_->device);
    if (device.ok()) return device;
    return device.status().within(std::string(to_string(call.kind)));
  }

  bool by_path(const CollectiveCall& call) const { return path_ != nullptr && path_->serves(call); }

  // What goes wrong in one memory, is over in both.
  Status noted(Status status) {
    const bool harmless = status.ok() || status.code() == StatusCode::kInvalidArgument ||
                          status.code() == StatusCode::kUnavailable;
    if (!harmless) watch_->fail(status);
    return status;
  }

  // Queues the call on the lane's stream. What is recorded has no event before it, and is not
  // watched; its calls go in their order, whatever their lanes: a device may do the parts of a
  // recording that do not depend on each other one after the other as it likes, and two ranks that
  // wait for each other must not have chosen differently. On one stream they do so by themselves,
  // and a recording of one stream stays a straight line.
  Result<WatchedOperation> enqueue(const CollectiveCall& call, DeviceLane lane,
                                   DeviceStream& stream) {
    WatchedOperation operation{.signature = signature_of(call, size(), 0),
                               .sequence = ++sequences_[index(lane)],
                               .end_time = std::make_shared<EndTime>()};
    const std::uint64_t recording = stream.recording();
    std::unique_lock in_order(recorded_mutex_, std::defer_lock);
    if (recording != 0) {
      in_order.lock();
      watch_->keep_memory(true);
      if (recording_ == recording && last_recorded_on_ != &stream) {
        DLAUNCH_RETURN_IF_ERROR(stream.wait(*last_recorded_));
      }
    } else {
      auto begun = stream.record();
      DLAUNCH_RETURN_IF_ERROR(begun.status());
      operation.begun = *std::move(begun);
    }
    const Status status = path_->enqueue(call, lane, stream);
    if (!status.ok()) {
      return status.within(describe_numbered(*operation.signature, operation.sequence));
    }
    auto ended = stream.record();
    DLAUNCH_RETURN_IF_ERROR(ended.status());
    operation.ended = *std::move(ended);
    if (recording != 0) {
      recording_ = recording;
      last_recorded_ = operation.ended;
      last_recorded_on_ = &stream;
    } else {
      watch_->add(lane, operation);
    }
    return operation;
  }

  Result<Work> start_on(const CollectiveCall& call, DeviceLane lane) {
    DeviceStream& stream = *streams_[index(lane)];
    auto before = core_->device->compute().record();
    DLAUNCH_RETURN_IF_ERROR(before.status());
    DLAUNCH_RETURN_IF_ERROR(stream.wait(**before));
    if (!by_path(call)) return staging_.start(*staged_, call, stream);
    auto operation = enqueue(call, lane, stream);
    DLAUNCH_RETURN_IF_ERROR(operation.status());
    return Work(std::make_shared<DeviceWork>(core_, operation->ended, operation->end_time,
                                             operation->begun == nullptr));
  }

  template <typename Data>
  Result<bool> message_on_device(const Data& data, const char* name) const {
    if (data.data == nullptr) return false;
    const MemoryPlace place = core_->device->place_of(data.data);
    if (place == MemoryPlace::kOtherDevice) {
      return Status(StatusCode::kInvalidArgument, "a buffer is in the memory of another GPU")
          .within(name);
    }
    return place == MemoryPlace::kThisDevice;
  }

  template <typename Data, typename OnHost, typename OnDevice>
  Status message(const Data& data, const char* name, const OnHost& on_host,
                 const OnDevice& on_device) {
    const Result<bool> device = message_on_device(data, name);
    DLAUNCH_RETURN_IF_ERROR(device.status());
    if (core_->failure.failed()) return core_->failed_earlier();
    return noted(*device ? on_device() : on_host());
  }

  template <typename Data, typename OnHost, typename OnDevice>
  Work start_message(const Data& data, const char* name, const OnHost& on_host,
                     const OnDevice& on_device) {
    const Result<bool> device = message_on_device(data, name);
    if (!device.ok()) return Work::finished(device.status());
    if (core_->failure.failed()) return Work::finished(core_->failed_earlier());
    return *device ? on_device() : on_host();
  }

  const DeviceCommunicatorOptions options_;
  const std::shared_ptr<DeviceCore> core_;
  Staging staging_;  // whose memory the calls of these two use:
  std::unique_ptr<Communicator> host_;
  std::unique_ptr<Communicator> staged_;  // for what is started on device memory
  DeviceWatch::LaneLocks mutexes_;
  std::array<std::uint64_t, kDeviceLanes> sequences_{};
  std::uint64_t repeats_ = 0;
  std::mutex recorded_mutex_;
  std::uint64_t recording_ = 0;                 // the last one
  std::shared_ptr<DeviceEvent> last_recorded_;  // behind its last call
  const DeviceStream* last_recorded_on_ = nullptr;
  std::array<std::unique_ptr<DeviceStream>, kDeviceLanes> streams_;  // kBlocking: nullptr
  std::unique_ptr<DevicePath> path_;                                 // nullptr: all by staging
  DevicePathKind path_kind_ = DevicePathKind::kStaging;
  std::string reason_;
  std::string why_not_recorded_;
  std::unique_ptr<DeviceWatch> watch_;
};

Status DeviceCommunicator::connect() {
  Status status;
  for (const DeviceLane lane : {DeviceLane::kAsync, DeviceLane::kHigh}) {
    auto stream = core_->device->make_stream(lane == DeviceLane::kHigh);
    if (status.ok()) status = stream.status();
    if (stream.ok()) streams_[index(lane)] = *std::move(stream);
  }
  DLAUNCH_RETURN_IF_ERROR(agree(*host_, status));
  DLAUNCH_RETURN_IF_ERROR(choose_path());
  DLAUNCH_RETURN_IF_ERROR(find_out_whether_calls_are_recorded());
  // First: once the watch uses it, a rank that leaves fails it, while others may still be
  // connecting it. All have done so when the next one is connected.
  std::unique_ptr<Communicator> control;
  if (size() > 1) {
    auto part = host_->split(0, rank());
    DLAUNCH_RETURN_IF_ERROR(part.status());
    control = *std::move(part);
  }
  auto staged = host_->split(0, rank());
  DLAUNCH_RETURN_IF_ERROR(staged.status());
  staged_ = *std::move(staged);
  staged_->set_timeout(options_.timeout);
  watch_ = std::make_unique<DeviceWatch>(
      core_, std::move(control), path_.get(), std::string(to_string(path_kind_)),
      std::vector<Communicator*>{host_.get(), staged_.get()}, mutexes_);
  return Status();
}

Status DeviceCommunicator::choose_path() {
  auto facts = exchange_facts(*host_, *core_->device, options_.path);
  DLAUNCH_RETURN_IF_ERROR(facts.status());
  auto candidates = choose_device_path(*facts);
  DLAUNCH_RETURN_IF_ERROR(candidates.status());
  const Logger& logger = options_.logger;
  std::string tried;
  for (const PathCandidate& candidate : *candidates) {
    const std::string name(to_string(candidate.kind));
    Status status = try_path(candidate.kind, *facts);
    if (status.ok()) {
      path_kind_ = candidate.kind;
      reason_ = tried + candidate.reason;
      logger->info("collectives on device memory ({} ranks, {}) take the path {}: {}", size(),
                   core_->device->name(), name, reason_);
      return status;
    }
    if (&candidate == &candidates->back()) return status.within("the path " + name);
    logger->warn("collectives on device memory cannot take the path {}: {}", name,
                 status.to_string());
    tried += name + " could not be connected (" + status.to_string() + "); ";
  }
  return Status();
}

// The same outcome on all ranks.
Status DeviceCommunicator::try_path(DevicePathKind kind, std::span<const DeviceFacts> facts) {
  if (kind == DevicePathKind::kStaging) return Status();
  auto path = kind == DevicePathKind::kNccl
                  ? core_->device->connect_native(*host_, options_.timeout)
                  : connect_memory_path(*host_, *core_->device,
                                        options_.memory.value_or(memory_options_for(facts)));
  Status agreed = agree(*host_, path.status());
  if (agreed.ok()) path_ = *std::move(path);
  return agreed;
}

Status DeviceCommunicator::find_out_whether_calls_are_recorded() {
  if (path_kind_ == DevicePathKind::kStaging) {
    why_not_recorded_ = "collectives by staging wait on the host";
  } else if (path_kind_ == DevicePathKind::kIpc && size() > 1) {
    const Status here = core_->device->records_calls(path_->others_memory());
    if (const Status all = agree(*host_, here); !all.ok())
      why_not_recorded_ =
          "the driver does not record the flags, copies and reductions of the path ipc: " +
          all.to_string();
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<DeviceWorld>> make_device_communicator(
    std::unique_ptr<Communicator> host, std::shared_ptr<Device> device,
    const DeviceCommunicatorOptions& options) {
  auto made = std::make_unique<DeviceCommunicator>(std::move(host), std::move(device), options);
  DLAUNCH_RETURN_IF_ERROR(made->connect().within("collectives on device memory"));
  return std::unique_ptr<DeviceWorld>(std::move(made));
}

}  // namespace dlaunch
