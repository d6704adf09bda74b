#include "runtime/device/memory_path.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/round_up.h"
#include "runtime/comm/call_signature.h"
#include "runtime/device/agreement.h"
#include "runtime/device/memory_plan.h"
#include "runtime/device/segments.h"
#include "runtime/device/shared_flags.h"

namespace dlaunch {
namespace {

constexpr std::size_t kSlotAlignment = 256;  // as cudaMalloc
// How long a rank that is through keeps its memory for others that have it open.
constexpr std::chrono::seconds kLongestGoodbye{5};
constexpr std::chrono::seconds kLongestGoodbyeAfterFailure{1};  // a dead rank never says anything

class MemoryPath final : public DevicePath {
 public:
  MemoryPath(int rank, int world, const MemoryPathOptions& options)
      : rank_(rank),
        world_(world),
        options_(options),
        slot_stride_(round_up(options.slot_bytes, kSlotAlignment)) {}

  // Memory may only be freed when nobody has it open any more (cudaFree).
  ~MemoryPath() override {
    if (!shown_) return;
    const bool orderly = connected_ && !released_;
    if (!orderly) release();  // to close memory may wait for this rank's streams
    close_others_memory(orderly ? Closed::kToLeave : Closed::kAfterFailure);
    const Deadline deadline =
        Deadline::after(orderly ? kLongestGoodbye : kLongestGoodbyeAfterFailure);
    while (open_elsewhere() && !deadline.expired()) {
      if (!orderly) release();  // streams of this rank may still wait for others
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  Status connect(Communicator& host, Device& device);

  // Records are reduced by functions of the host; of unequal parts each rank knows only its own.
  bool serves(const CollectiveCall& call) const override {
    return call.record == nullptr &&
           !(call.kind == CollectiveKind::kAllToAll && !call.counts.empty());
  }

  Status enqueue(const CollectiveCall& call, DeviceLane lane, DeviceStream& stream) override;
  const void* others_memory() const override {
    if (world_ == 1 || options_.slot_bytes < kProbedBytes) return nullptr;
    return memory_[index(DeviceLane::kBlocking)][static_cast<std::size_t>((rank_ + 1) % world_)]
        .get();
  }

  Status check() override { return Status(); }
  void release() override;
  std::optional<int> awaited(DeviceLane lane) const override;
  std::optional<int> leaver() const override;
  void let_go(const Status& why) override;

 private:
  struct Job {
    const CollectiveCall& call;
    DeviceLane lane;
    DeviceStream& stream;
    Segments input;
    Segments output;
    std::size_t element = 1;  // bytes
    std::size_t slot = 0;     // of the round
  };

  static std::size_t index(DeviceLane lane) { return static_cast<std::size_t>(lane); }
  std::byte* in_slot(const Job& job, int member, std::size_t place) const {
    void* const slots = memory_[index(job.lane)][static_cast<std::size_t>(member)].get();
    return static_cast<std::byte*>(slots) + job.slot * slot_stride_ + place * job.element;
  }
  Status carry_out(const Job& job, const MemoryStep& step) const;
  Status reduce(const Job& job, const MemoryStep& step, bool into_slot) const;
  Status synchronise(const Job& job, bool tell, bool wait, MemoryPhase phase) const;
  void close_others_memory(Closed why);
  Closed closed(int rank) const;
  bool open_elsewhere() const;

  const int rank_;
  const int world_;
  const MemoryPathOptions options_;
  const std::size_t slot_stride_;       // bytes
  std::unique_ptr<SharedFlags> flags_;  // none in a world of one
  // The slots, by lane and rank; those of a lane lie one behind the other.
  std::array<std::vector<std::shared_ptr<void>>, kDeviceLanes> memory_;
  std::array<std::size_t, kDeviceLanes> rounds_{};  // that were queued, the same on all ranks
  bool shown_ = false;                              // others may open its memory
  bool connected_ = false;                          // to others
  bool released_ = false;
  Status left_;  // another rank; not ok once its memory is closed
};

Status MemoryPath::connect(Communicator& host, Device& device) {
  if (world_ == 1) return Status();
  constexpr std::size_t kLargestElement = 8;
  if (options_.slot_bytes < static_cast<std::size_t>(world_) * kLargestElement) {
    return Status(StatusCode::kInvalidArgument, "slots of " + std::to_string(options_.slot_bytes) +
                                                    " bytes hold no element for " +
                                                    std::to_string(world_) + " ranks each");
  }
  auto flags = SharedFlags::connect(host, device);
  DLAUNCH_RETURN_IF_ERROR(flags.status());
  flags_ = *std::move(flags);
  const auto p = static_cast<std::size_t>(world_);
  std::array<MemoryHandle, kDeviceLanes> own;
  Status status;
  for (std::size_t lane = 0; lane < kDeviceLanes && status.ok(); ++lane) {
    memory_[lane].resize(p);
    auto memory = device.allocate(kMemorySlots * slot_stride_);
    status = memory.status();
    if (!status.ok()) break;
    memory_[lane][static_cast<std::size_t>(rank_)] = *memory;
    auto handle = device.share(memory->get());
    status = handle.status();
    if (status.ok()) own[lane] = *handle;
  }
  DLAUNCH_RETURN_IF_ERROR(agree(host, status).within("memory to share"));
  shown_ = true;
  std::vector<std::array<MemoryHandle, kDeviceLanes>> all(p);
  DLAUNCH_RETURN_IF_ERROR(host.all_gather(ConstBuffer(&own, sizeof own, DType::kU8),
                                          Buffer(all.data(), all.size() * sizeof own, DType::kU8)));
  for (std::size_t lane = 0; lane < kDeviceLanes; ++lane) {
    for (std::size_t member = 0; member < p && status.ok(); ++member) {
      if (memory_[lane][member] != nullptr) continue;
      auto opened = device.open(all[member][lane]);
      status = opened.status().within("memory of rank " + std::to_string(member));
      if (status.ok()) memory_[lane][member] = *opened;
    }
  }
  DLAUNCH_RETURN_IF_ERROR(agree(host, status));
  connected_ = true;
  return Status();
}

Status MemoryPath::enqueue(const CollectiveCall& call, DeviceLane lane, DeviceStream& stream) {
  if (!left_.ok()) return left_;
  Job job{.call = call,
          .lane = lane,
          .stream = stream,
          .input = Segments::inputs(call),
          .output = Segments::outputs(call),
          .element = element_bytes(call)};
  const std::size_t total = total_count(call, world_);
  const std::size_t each = total / static_cast<std::size_t>(world_);
  std::vector<std::size_t> equal;
  MemoryShape shape{.kind = call.kind,
                    .rank = rank_,
                    .world = world_,
                    .root = call.root,
                    .counts = call.counts,
                    .count = total,
                    .slot = options_.slot_bytes / job.element,
                    .one_shot = options_.one_shot_bytes / job.element};
  switch (call.kind) {
    case CollectiveKind::kAllToAll:
      equal.assign(static_cast<std::size_t>(world_),
                   call.input.count / static_cast<std::size_t>(world_));
      break;
    case CollectiveKind::kScatter:
    case CollectiveKind::kGather:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      if (call.counts.empty()) equal.assign(static_cast<std::size_t>(world_), each);
      break;
    default:
      break;
  }
  if (!equal.empty()) shape.counts = equal;
  for (const MemoryStep& step : memory_plan(shape)) {
    if (step.kind == MemoryStep::Kind::kAcquire) job.slot = rounds_[index(lane)]++ % kMemorySlots;
    DLAUNCH_RETURN_IF_ERROR(carry_out(job, step));
  }
  return Status();
}

Status MemoryPath::carry_out(const Job& job, const MemoryStep& step) const {
  const std::size_t begin = step.at * job.element;
  const std::size_t bytes = step.count * job.element;
  switch (step.kind) {
    case MemoryStep::Kind::kAcquire:
      return synchronise(job, false, true, MemoryPhase::kRead);
    case MemoryStep::Kind::kMeet:
      return synchronise(job, true, true, step.phase);
    case MemoryStep::Kind::kRelease:
      return synchronise(job, true, false, MemoryPhase::kRead);
    case MemoryStep::Kind::kLoad:
      return job.input.for_each(begin, bytes, [&](std::byte* from, std::size_t at, std::size_t n) {
        return job.stream.copy(in_slot(job, rank_, step.place) + at, from, n);
      });
    case MemoryStep::Kind::kCopy:
      return job.output.for_each(begin, bytes, [&](std::byte* to, std::size_t at, std::size_t n) {
        return job.stream.copy(to, in_slot(job, step.member, step.place) + at, n);
      });
    case MemoryStep::Kind::kMove:
      return job.output.for_each(begin, bytes, [&](std::byte* to, std::size_t at, std::size_t n) {
        return job.input.for_each(at, n, [&](std::byte* from, std::size_t within, std::size_t m) {
          return from == to + within ? Status() : job.stream.copy(to + within, from, m);
        });
      });
    case MemoryStep::Kind::kReduceIntoSlot:
      return reduce(job, step, true);
    case MemoryStep::Kind::kReduceIntoOutput:
      break;
  }
  return reduce(job, step, false);
}

Status MemoryPath::reduce(const Job& job, const MemoryStep& step, bool into_slot) const {
  std::array<const void*, kMostOperands> operands{};
  const auto reduce_into = [&](std::byte* into, std::size_t at, std::size_t bytes) {
    for (int member = 0; member < world_; ++member) {
      operands[static_cast<std::size_t>(member)] = in_slot(job, member, step.place) + at;
    }
    return job.stream.reduce(job.call.op, dtype_of_call(job.call), into,
                             std::span(operands).first(static_cast<std::size_t>(world_)),
                             bytes / job.element, world_);
  };
  const std::size_t bytes = step.count * job.element;
  if (into_slot) return reduce_into(in_slot(job, rank_, step.place), 0, bytes);
  return job.output.for_each(step.at * job.element, bytes, reduce_into);
}

// The waits come before the writes that clear what was waited for, so that while the stream waits
// the flags tell for whom.
Status MemoryPath::synchronise(const Job& job, bool tell, bool wait, MemoryPhase phase) const {
  using Kind = FlagAction::Kind;
  const FlagLayout& layout = flags_->layout();
  const std::size_t table = FlagLayout::table(job.lane, job.slot, phase);
  std::uint32_t* const stage = flags_->word(layout.stage(job.lane, rank_));
  std::vector<FlagAction> actions;
  actions.reserve(3 * static_cast<std::size_t>(world_) + 2);
  const auto for_each_peer = [&](const auto& action) {
    for (int peer = 0; peer < world_; ++peer) {
      if (peer != rank_) actions.push_back(action(peer));
    }
  };
  const auto mine = [&](int peer) { return flags_->word(layout.flag(table, rank_, peer)); };
  const auto theirs = [&](int peer) { return flags_->word(layout.flag(table, peer, rank_)); };
  if (tell) {
    for_each_peer([&](int peer) { return FlagAction{Kind::kWrite, mine(peer), 1}; });
  }
  if (wait) {
    actions.push_back({Kind::kWrite, stage, 1 + static_cast<std::uint32_t>(table)});
    for_each_peer([&](int peer) { return FlagAction{Kind::kWaitUntilEqual, theirs(peer), 1}; });
    for_each_peer([&](int peer) { return FlagAction{Kind::kWrite, theirs(peer), 0}; });
    actions.push_back({Kind::kWrite, stage, 0});
  }
  return job.stream.flags(actions);
}

// Flags that this rank's streams may be waiting for. They write others again, so once is not
// enough.
void MemoryPath::release() {
  released_ = true;
  if (flags_ == nullptr) return;
  for (std::size_t table = 0; table < FlagLayout::kTables; ++table) {
    for (int peer = 0; peer < world_; ++peer) {
      flags_->store(flags_->layout().flag(table, peer, rank_), 1);
    }
  }
}

std::optional<int> MemoryPath::awaited(DeviceLane lane) const {
  if (flags_ == nullptr) return std::nullopt;
  const FlagLayout& layout = flags_->layout();
  const std::uint32_t stage = flags_->load(layout.stage(lane, rank_));
  if (stage == 0 || stage > FlagLayout::kTables) return std::nullopt;
  for (int peer = 0; peer < world_; ++peer) {
    if (peer != rank_ && flags_->load(layout.flag(stage - 1, peer, rank_)) == 0) return peer;
  }
  return std::nullopt;
}

std::optional<int> MemoryPath::leaver() const {
  if (flags_ == nullptr) return std::nullopt;
  for (int peer = 0; peer < world_; ++peer) {
    if (peer != rank_ && closed(peer) == Closed::kToLeave) return peer;
  }
  return std::nullopt;
}

void MemoryPath::let_go(const Status& why) {
  left_ = why;
  close_others_memory(Closed::kAfterALeaver);
}

void MemoryPath::close_others_memory(Closed why) {
  for (auto& of_lane : memory_) {
    for (std::size_t member = 0; member < of_lane.size(); ++member) {
      if (member != static_cast<std::size_t>(rank_)) of_lane[member].reset();
    }
  }
  flags_->store(flags_->layout().closed(rank_), static_cast<std::uint32_t>(why));
}

Closed MemoryPath::closed(int rank) const {
  return static_cast<Closed>(flags_->load(flags_->layout().closed(rank)));
}

// Whether another rank may have this one's memory open.
bool MemoryPath::open_elsewhere() const {
  for (int peer = 0; peer < world_; ++peer) {
    if (peer != rank_ && closed(peer) == Closed::kNot) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<DevicePath>> connect_memory_path(Communicator& host, Device& device,
                                                        const MemoryPathOptions& options) {
  auto path = std::make_unique<MemoryPath>(host.rank(), host.size(), options);
  DLAUNCH_RETURN_IF_ERROR(path->connect(host, device));
  return std::unique_ptr<DevicePath>(std::move(path));
}

}  // namespace dlaunch
