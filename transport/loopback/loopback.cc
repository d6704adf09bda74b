#include "transport/loopback/loopback.h"

#include <sched.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "transport/failure_notice.h"
#include "transport/failure_state.h"
#include "transport/inbox.h"
#include "transport/shm/mapping.h"
#include "transport/shm/shared_group.h"

namespace dlaunch {
namespace {

constexpr std::size_t kHeapBytes = std::size_t{64} << 20;
// How often a rank that waits for shared memory lets others run before it sleeps.
constexpr int kYields = 20;

struct Mail {
  enum class Kind { kData, kGoodbye, kAbort, kDeath };
  Kind kind = Kind::kData;
  int from = -1;
  MessageTag tag;
  MessageSignature signature;
  std::vector<std::byte> data;
  FailureNotice notice;
};

struct Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<Mail> mail;
  bool woken = false;
  bool closed = false;  // nobody reads it any more

  void put(Mail&& item) {
    const std::scoped_lock lock(mutex);
    if (closed) return;
    mail.push_back(std::move(item));
    arrived.notify_one();
  }
  // The owner looks again at what it waits for.
  void ring() {
    const std::scoped_lock lock(mutex);
    arrived.notify_one();
  }
};

}  // namespace

struct LoopbackNetwork::Mailboxes final : Doorbells {
  explicit Mailboxes(int world_size) : boxes(static_cast<std::size_t>(world_size)) {}
  std::deque<Mailbox> boxes;
  SignaturePrinter describe = nullptr;
  Mapping shared;  // the memory of the shared group, then the heaps; empty: there is none

  int world_size() const { return static_cast<int>(boxes.size()); }
  Mailbox& of(int rank) { return boxes[static_cast<std::size_t>(rank)]; }
  void ring(int member) override { of(member).ring(); }
  std::optional<SharedGroup> make_group(int rank) {
    if (shared.data() == nullptr) return std::nullopt;
    SharedGroup::Options options{.index = rank,
                                 .memory = shared.data(),
                                 .heaps = shared.data() + SharedGroup::memory_bytes(world_size()),
                                 .heap_bytes = kHeapBytes,
                                 .doorbells = this};
    for (int member = 0; member < world_size(); ++member) {
      options.members.push_back({.rank = member, .pid = ::getpid()});
    }
    return SharedGroup(std::move(options));
  }
  void put_to_others(int from, const Mail& item) {
    for (int rank = 0; rank < world_size(); ++rank) {
      if (rank != from) of(rank).put(Mail(item));
    }
  }
};

namespace {

class LoopbackEndpoint final : public Endpoint {
 public:
  LoopbackEndpoint(std::shared_ptr<LoopbackNetwork::Mailboxes> network, int rank)
      : network_(std::move(network)),
        context_{
            .rank = rank, .world_size = network_->world_size(), .describe = network_->describe},
        group_(network_->make_group(rank)),
        left_(static_cast<std::size_t>(context_.world_size)) {
    for (int peer = 0; peer < context_.world_size; ++peer) inboxes_.emplace_back(context_, peer);
  }

  ~LoopbackEndpoint() override {
    Mailbox& own = network_->of(context_.rank);
    {
      const std::scoped_lock lock(own.mutex);
      own.closed = true;
      own.mail.clear();
    }
    if (!failure_.failed()) {
      network_->put_to_others(context_.rank, {.kind = Mail::Kind::kGoodbye, .from = context_.rank});
    }
    fail_receives(Status(StatusCode::kAborted, "the endpoint was closed"));
  }

  int rank() const override { return context_.rank; }
  int world_size() const override { return context_.world_size; }

  void start_send(Transfer& transfer) override {
    if (refuse(transfer)) return;
    Mail mail{.from = context_.rank, .tag = transfer.tag, .signature = transfer.signature};
    try {
      if (transfer.bytes > 0) mail.data.assign(transfer.data, transfer.data + transfer.bytes);
    } catch (const std::bad_alloc&) {
      const Status why(StatusCode::kIo,
                       "no memory for a message of " + std::to_string(transfer.bytes) + " bytes");
      context_.complete(transfer, why);
      return fail(why);
    }
    if (transfer.peer != context_.rank && left(transfer.peer)) {
      return context_.complete(transfer, peer_left(transfer.peer));
    }
    network_->of(transfer.peer).put(std::move(mail));
    context_.complete(transfer, Status());
  }

  void start_recv(Transfer& transfer) override {
    if (transfer.peer == kAnyRank && !failure_.failed()) return recv_from_any(transfer);
    if (refuse(transfer)) return;
    Inbox& inbox = inboxes_[static_cast<std::size_t>(transfer.peer)];
    if (Status posted = inbox.post(transfer); !posted.ok()) return fail(posted);
    if (!transfer.done() && left(transfer.peer)) inbox.fail_receives(peer_left(transfer.peer));
  }

  void cancel(Transfer& transfer, Status why) override {
    if (!transfer.done()) fail(std::move(why));
  }

  void poll(Deadline deadline, const Readiness* also) override {
    for (int turn = 0; also != nullptr && turn < kYields && !also->ready(); ++turn) ::sched_yield();
    Mailbox& own = network_->of(context_.rank);
    std::vector<Mail> arrived;
    bool woken = false;
    while (true) {
      {
        std::unique_lock lock(own.mutex);
        const bool event = std::exchange(context_.completed, false) || failure_.failed();
        const auto something = [&] {
          // Who changes what `also` waits for from now on will ring, once.
          if (group_.has_value()) group_->fall_asleep(awaited_by(also));
          return event || own.woken || !own.mail.empty() || (also != nullptr && also->ready());
        };
        own.arrived.wait_until(lock, deadline.when(), something);
        if (group_.has_value()) group_->wake_up();
        arrived.clear();
        std::swap(arrived, own.mail);
        woken = std::exchange(own.woken, false) || event;
      }
      for (Mail& mail : arrived) take(mail);
      if (std::exchange(context_.completed, false) || woken || failure_.failed() ||
          (also != nullptr && also->ready()) || deadline.expired()) {
        return;
      }
    }
  }

  void wake() override {
    Mailbox& own = network_->of(context_.rank);
    const std::scoped_lock lock(own.mutex);
    own.woken = true;
    own.arrived.notify_one();
  }

  Status failure() const override { return failure_.status(); }

  void fail(Status why) override { fail_as(why, FailureNotice::from(why, context_.rank)); }

  const char* transport_name(int /*peer*/) const override { return "loopback"; }

  std::span<const int> departed() const override { return departed_; }
  SharedGroup* shared_group() override { return group_.has_value() ? &*group_ : nullptr; }

 private:
  bool left(int peer) const { return left_[static_cast<std::size_t>(peer)]; }

  void recv_from_any(Transfer& transfer) {
    const Inbox::Message* first = nullptr;
    for (int peer = 0; peer < context_.world_size; ++peer) {
      const Inbox::Message* message =
          inboxes_[static_cast<std::size_t>(peer)].find_message(transfer.tag);
      if (message == nullptr || (first != nullptr && message->arrival > first->arrival)) continue;
      first = message;
      transfer.peer = peer;
    }
    if (first != nullptr) return start_recv(transfer);
    if (alone()) return context_.complete(transfer, all_others_left());
    context_.receives_of_any.add(transfer);
  }

  // All others have left. (The only rank of a world may get messages from itself.)
  bool alone() const {
    return context_.world_size > 1 &&
           departed_.size() + 1 == static_cast<std::size_t>(context_.world_size);
  }

  bool refuse(Transfer& transfer) {
    if (failure_.failed()) {
      context_.complete(transfer, failure_.status());
      return true;
    }
    if (transfer.peer >= 0 && transfer.peer < context_.world_size) return false;
    context_.complete(
        transfer, Status(StatusCode::kInvalidArgument, "no rank " + std::to_string(transfer.peer)));
    return true;
  }

  void take(Mail& mail) {
    if (failure_.failed()) return;
    Inbox& inbox = inboxes_[static_cast<std::size_t>(mail.from)];
    switch (mail.kind) {
      case Mail::Kind::kData: {
        Status delivered =
            inbox.deliver(mail.tag, mail.signature, mail.data.data(), mail.data.size());
        if (!delivered.ok()) fail(delivered);
        return;
      }
      case Mail::Kind::kGoodbye:
        left_[static_cast<std::size_t>(mail.from)] = true;
        departed_.push_back(mail.from);
        context_.completed = true;  // poll() returns
        inbox.fail_receives(peer_left(mail.from));
        if (alone()) context_.fail_receives_of_any(all_others_left());
        return;
      case Mail::Kind::kAbort:
        return fail_as(mail.notice.to_status(), mail.notice);
      case Mail::Kind::kDeath:
        if (mail.from == context_.rank) {
          fail_silently(Status(StatusCode::kAborted, "this rank was killed"));
        } else {
          fail(Status::about_peer(StatusCode::kPeerLost, mail.from,
                                  "connection closed unexpectedly"));
        }
        return;
    }
  }

  void fail_as(const Status& why, const FailureNotice& notice) {
    if (!fail_silently(why)) return;
    network_->put_to_others(context_.rank,
                            {.kind = Mail::Kind::kAbort, .from = context_.rank, .notice = notice});
  }

  bool fail_silently(const Status& why) {
    if (!failure_.set(why)) return false;
    fail_receives(why);
    return true;
  }

  void fail_receives(const Status& why) {
    for (Inbox& inbox : inboxes_) inbox.fail_receives(why);
    context_.fail_receives_of_any(why);
  }

  std::shared_ptr<LoopbackNetwork::Mailboxes> network_;
  EndpointContext context_;
  std::optional<SharedGroup> group_;
  std::deque<Inbox> inboxes_;  // by peer
  std::vector<bool> left_;     // has said goodbye
  std::vector<int> departed_;  // the same as a list
  FailureState failure_;
};

}  // namespace

LoopbackNetwork::LoopbackNetwork(int world_size, SignaturePrinter describe, bool shared_memory)
    : mailboxes_(std::make_shared<Mailboxes>(world_size)) {
  mailboxes_->describe = describe;
  if (!shared_memory) return;
  const std::size_t bytes =
      SharedGroup::memory_bytes(world_size) + static_cast<std::size_t>(world_size) * kHeapBytes;
  mailboxes_->shared = Mapping::anonymous(bytes).value_or_throw();
}
LoopbackNetwork::~LoopbackNetwork() = default;
LoopbackNetwork::LoopbackNetwork(LoopbackNetwork&&) noexcept = default;
LoopbackNetwork& LoopbackNetwork::operator=(LoopbackNetwork&&) noexcept = default;

std::unique_ptr<Endpoint> LoopbackNetwork::endpoint(int rank) {
  return std::make_unique<LoopbackEndpoint>(mailboxes_, rank);
}

void LoopbackNetwork::report_death(int rank) {
  mailboxes_->put_to_others(rank, {.kind = Mail::Kind::kDeath, .from = rank});
}

void LoopbackNetwork::stop(int rank) {
  mailboxes_->of(rank).put({.kind = Mail::Kind::kDeath, .from = rank});
}

}  // namespace dlaunch
