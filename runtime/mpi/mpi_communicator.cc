#include "runtime/mpi/mpi_communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/shared_heap.h"
#include "runtime/comm/validation.h"
#include "runtime/mpi/mpi_notices.h"
#include "runtime/mpi/mpi_operation.h"
#include "runtime/mpi/mpi_progress.h"
#include "runtime/mpi/mpi_wait.h"
#include "transport/failure_state.h"

namespace dlaunch {
namespace {

constexpr std::chrono::nanoseconds kLongestTimeout = std::chrono::hours(24 * 365);

// At most, to take in what this rank has sent to itself and nobody has received.
constexpr std::chrono::nanoseconds kOwnMessagesTake = std::chrono::seconds(1);

// An MPI communicator for each kind of call; the last one carries notices too.
enum Lane { kBlocking, kAsync, kHigh, kLanes };
using LaneComms = std::array<MPI_Comm, kLanes>;
// All messages, so that a blocking one meets an asynchronous one.
constexpr Lane kMessages = kAsync;

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiLibrary> library, const LaneComms& comms, int rank, int size,
                  int tag_bound, const MpiCommunicatorOptions& options)
      : library_(std::move(library)),
        comms_(comms),
        rank_(rank),
        size_(size),
        tag_bound_(tag_bound),
        options_(options),
        reduce_order_(options.reduce_order),
        notices_(std::make_unique<MpiNotices>(comms[kHigh], rank, size)),
        progress_(
            *library_, failure_, [this] { listen(); }, [this](const Status& why) { fail(why); }) {
    set_timeout(options.world.timeout);
  }

  ~MpiCommunicator() override {
    progress_.stop();
    receive_own_messages();
    notices_.reset();
    if (failure_.failed()) library_->abandon();
    if (library_->abandoned()) return;  // MPI may still be using the communicators
    for (MPI_Comm& comm : comms_) MPI_Comm_free(&comm);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status run(const CollectiveCall& call) override {
    DLAUNCH_RETURN_IF_ERROR(validate(call, rank_, size_));
    const std::scoped_lock lock(mutexes_[kBlocking]);
    return wait_for(
        [&](MpiOperation& operation) { begin_collective(context(kBlocking), call, operation); });
  }

  Work start(const CollectiveCall& call) override {
    if (Status invalid = validate(call, rank_, size_); !invalid.ok()) {
      return Work::finished(std::move(invalid));
    }
    const Lane lane = call.priority == Priority::kHigh ? kHigh : kAsync;
    return start_on(
        lane, [&](MpiOperation& operation) { begin_collective(context(lane), call, operation); });
  }

  Status send(ConstBuffer data, int peer, std::uint64_t tag) override {
    DLAUNCH_RETURN_IF_ERROR(check_send(data, peer, tag));
    if (peer == rank_) return send_to_self(data, tag);
    return wait_for([&](MpiOperation& operation) {
      const std::scoped_lock lock(mutexes_[kMessages]);
      begin_send(context(kMessages), data, peer, tag, operation);
    });
  }

  Status recv(Buffer data, int peer, std::uint64_t tag, int* sender) override {
    DLAUNCH_RETURN_IF_ERROR(check_recv(data, peer, tag));
    return wait_for([&](MpiOperation& operation) {
      const std::scoped_lock lock(mutexes_[kMessages]);
      begin_recv(context(kMessages), data, peer, tag, operation, sender);
    });
  }

  Work start_send(ConstBuffer data, int peer, std::uint64_t tag) override {
    if (Status invalid = check_send(data, peer, tag); !invalid.ok()) {
      return Work::finished(std::move(invalid));
    }
    if (peer == rank_) return Work::finished(send_to_self(data, tag));
    return start_on(kMessages, [&](MpiOperation& operation) {
      begin_send(context(kMessages), data, peer, tag, operation);
    });
  }

  Work start_recv(Buffer data, int peer, std::uint64_t tag, int* sender) override {
    if (Status invalid = check_recv(data, peer, tag); !invalid.ok()) {
      return Work::finished(std::move(invalid));
    }
    return start_on(kMessages, [&](MpiOperation& operation) {
      begin_recv(context(kMessages), data, peer, tag, operation, sender);
    });
  }

  Result<std::unique_ptr<Communicator>> split(int color, int key) override;
  Result<SharedMemory> allocate(std::size_t bytes) override { return allocate_plain(bytes); }

  void set_timeout(std::chrono::nanoseconds timeout) override {
    timeout_ = std::clamp(timeout, std::chrono::nanoseconds(0), kLongestTimeout);
  }
  void set_reduce_order(ReduceOrder order) override { reduce_order_ = order; }
  ReduceOrder reduce_order() const override { return reduce_order_; }

  void abort(Status why) override {
    if (why.ok()) why = Status(StatusCode::kAborted, "the communicator was aborted");
    fail(why);
  }

 private:
  MpiContext context(Lane lane) const {
    return {library_.get(), comms_[lane], rank_, size_, options_.world.largest_count, tag_bound_};
  }

  Status check_send(ConstBuffer data, int peer, std::uint64_t tag) const {
    DLAUNCH_RETURN_IF_ERROR(validate_send(data, peer, size_));
    return check_tag(tag).within("send");
  }

  Status check_recv(Buffer data, int peer, std::uint64_t tag) const {
    DLAUNCH_RETURN_IF_ERROR(validate_recv(data, peer, size_));
    // Of a longer one the pieces could come from different ranks.
    const std::size_t largest = context(kMessages).largest_count;
    if (peer != kAnyRank || data.count <= largest) return check_tag(tag).within("recv");
    return Status(StatusCode::kInvalidArgument,
                  "from any rank MPI can take " + std::to_string(largest) + " elements at most")
        .within("recv");
  }

  Status check_tag(std::uint64_t tag) const {
    if (tag < static_cast<std::uint64_t>(tag_bound_)) return Status();
    return Status(StatusCode::kInvalidArgument,
                  "tag " + std::to_string(tag) +
                      " is too large for this MPI, whose tags lie below " +
                      std::to_string(tag_bound_));
  }

  Status failed_earlier() const {
    return options_.part.explain(failure_.status().within("the communicator failed earlier"));
  }

  // Begins an operation and tests it until it has ended. For a collective, the lane's mutex is
  // held.
  template <typename Begin>
  Status wait_for(const Begin& begin) {
    if (failure_.failed()) return failed_earlier();
    auto operation = std::make_unique<MpiOperation>();
    begin(*operation);
    Status status = complete(*operation);
    if (!operation->withdraw()) library_->abandon(std::move(operation));
    if (!status.ok()) fail(status);
    return options_.part.explain(status);
  }

  Status complete(MpiOperation& operation) {
    if (!operation.status.ok() || operation.test()) return result_of(operation);
    const Deadline deadline = Deadline::after(timeout_);
    MpiPatience patience;
    while (!operation.test()) {
      if (patience.look_around()) {
        listen();
        if (failure_.failed()) return failure_.status().within_once(operation.name());
        if (deadline.expired()) {
          return Status(StatusCode::kTimeout, "timed out").within(operation.name());
        }
      }
      patience.pause();
    }
    return result_of(operation);
  }

  template <typename Begin>
  Work start_on(Lane lane, const Begin& begin) {
    const std::scoped_lock lock(mutexes_[lane]);
    if (failure_.failed()) return Work::finished(failed_earlier());
    auto operation = std::make_unique<MpiOperation>();
    operation->timeout = timeout_;
    operation->deadline = Deadline::after(operation->timeout);
    begin(*operation);
    return options_.part.explain(progress_.submit(std::move(operation)));
  }

  // MPI may wait for the receiver, which is the same thread here.
  Status send_to_self(ConstBuffer data, std::uint64_t tag) {
    const std::scoped_lock lock(mutexes_[kMessages]);
    if (failure_.failed()) return failed_earlier();
    std::erase_if(to_self_, [](const auto& sent) { return sent.operation->test(); });
    auto& sent = to_self_.emplace_back(tag);
    begin_send(context(kMessages), data, rank_, tag, *sent.operation);
    return sent.operation->status;
  }

  // What this rank sent to itself and never received would keep MPI from ending.
  void receive_own_messages() {
    const Deadline deadline = Deadline::after(kOwnMessagesTake);
    for (SentToSelf& sent : to_self_) {
      while (!sent.operation->test() && !deadline.expired()) {
        if (!drop_own_message(sent.tag)) std::this_thread::yield();
      }
      if (!sent.operation->test()) library_->abandon(std::move(sent.operation));
    }
  }

  // The next one with the tag, which need not be that whose send waits: MPI is done with sending
  // short ones at once. False if there is none.
  bool drop_own_message(std::uint64_t tag) {
    int found = 0;
    int bytes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status about;
    const auto number = static_cast<int>(tag);
    const int code = MPI_Improbe(rank_, number, comms_[kMessages], &found, &message, &about);
    if (code != MPI_SUCCESS || found == 0) return false;
    MPI_Get_count(&about, MPI_BYTE, &bytes);
    if (bytes == MPI_UNDEFINED) return false;  // more than MPI can count: it is given up
    std::vector<std::byte> into(static_cast<std::size_t>(bytes));
    return MPI_Mrecv(into.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE) == MPI_SUCCESS;
  }

  void listen() {
    if (const auto told = notices_->receive()) failure_.set(*told);
  }

  void fail(const Status& why) {
    if (failure_.set(why)) notices_->send(why);
  }

  struct SentToSelf {
    explicit SentToSelf(std::uint64_t tag) : tag(tag) {}
    std::uint64_t tag;
    std::unique_ptr<MpiOperation> operation = std::make_unique<MpiOperation>();
  };

  const std::shared_ptr<MpiLibrary> library_;
  LaneComms comms_;
  const int rank_;
  const int size_;
  const int tag_bound_;
  const MpiCommunicatorOptions options_;
  std::atomic<std::chrono::nanoseconds> timeout_{};
  std::atomic<ReduceOrder> reduce_order_;
  std::atomic<int> splits_{0};
  FailureState failure_;
  std::array<std::mutex, kLanes> mutexes_;  // a lane's calls enter MPI in one order
  std::vector<SentToSelf> to_self_;
  std::unique_ptr<MpiNotices> notices_;
  MpiProgress progress_;
};

// The ranks of `whole` that those of `part` are, by rank.
std::vector<int> members_of(MPI_Comm part, MPI_Comm whole) {
  std::array<MPI_Group, 2> groups{};
  MPI_Comm_group(part, groups.data());
  MPI_Comm_group(whole, groups.data() + 1);
  int size = 0;
  MPI_Group_size(groups[0], &size);
  std::vector<int> own(static_cast<std::size_t>(size));
  std::iota(own.begin(), own.end(), 0);
  std::vector<int> members(own.size());
  MPI_Group_translate_ranks(groups[0], size, own.data(), groups[1], members.data());
  for (MPI_Group& group : groups) MPI_Group_free(&group);
  return members;
}

Result<std::unique_ptr<Communicator>> MpiCommunicator::split(int color, int key) {
  // MPI_Comm_split has no deadline, so it begins when all ranks are there.
  DLAUNCH_RETURN_IF_ERROR(barrier().within("split"));
  // One that has given up the barrier before this rank came to it is still in it for MPI.
  listen();
  if (failure_.failed()) return failed_earlier().within("split");
  MPI_Comm part = MPI_COMM_NULL;
  {
    const std::scoped_lock lock(mutexes_[kBlocking]);
    const int code =
        MPI_Comm_split(comms_[kBlocking], color < 0 ? MPI_UNDEFINED : color, key, &part);
    DLAUNCH_RETURN_IF_ERROR(mpi_status(code, "MPI_Comm_split").within("split"));
  }
  const int number = ++splits_;
  if (part == MPI_COMM_NULL) return std::unique_ptr<Communicator>();
  MpiCommunicatorOptions options = options_;
  options.world.timeout = timeout_;
  options.reduce_order = reduce_order_;
  options.name += "/" + std::to_string(number) + "." + std::to_string(color);
  options.part = options_.part.of_part(options.name, members_of(part, comms_[kBlocking]), size_);
  auto communicator = make_mpi_communicator(library_, part, options);
  MPI_Comm_free(&part);
  return communicator;
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_mpi_communicator(std::shared_ptr<MpiLibrary> library,
                                                            MPI_Comm comm,
                                                            const MpiCommunicatorOptions& options) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  LaneComms comms{};
  for (MPI_Comm& lane : comms) {
    DLAUNCH_RETURN_IF_ERROR(mpi_status(MPI_Comm_dup(comm, &lane), "MPI_Comm_dup"));
    MPI_Comm_set_errhandler(lane, MPI_ERRORS_RETURN);
  }
  int* bound = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&bound), &found);
  const int tag_bound = found != 0 ? *bound : 32'767;  // what the standard guarantees
  return std::unique_ptr<Communicator>(
      std::make_unique<MpiCommunicator>(std::move(library), comms, rank, size, tag_bound, options));
}

}  // namespace dlaunch
