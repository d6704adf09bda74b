// TcpStore: a client of the rendezvous store that dlaunch hosts.
//
// Any thread may call it; calls of several threads share one connection, and one that waits does
// not hold up the others: the thread that waits longest reads for all. A connection that broke
// stays broken: every later call returns why.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/activity.h"
#include "runtime/rendezvous/store.h"
#include "runtime/rendezvous/store_batch.h"
#include "runtime/rendezvous/store_protocol.h"

namespace dlaunch {

class TcpStore final : public Store {
 public:
  /// Connects to "host:port" and proves the token (raw bytes), both ways. `prefix` is put before
  /// every key of every call, and taken off again, so that attempts of a job do not meet.
  ///   kUnavailable      nobody listens there, or the host has no address
  ///   kUnauthenticated  one side does not know the token
  ///   kProtocol         that is no store, or one of another version
  ///   kTimeout          the deadline passed
  static Result<std::unique_ptr<TcpStore>> connect(std::string_view address, std::string_view token,
                                                   Deadline deadline, std::string prefix = "");
  ~TcpStore() override;
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;

  Status set(std::string_view key, std::string_view value) override;
  Result<std::vector<std::string>> get_all(const std::vector<std::string>& keys,
                                           Deadline deadline) override;
  Result<std::vector<std::optional<std::string>>> try_get(
      const std::vector<std::string>& keys) override;
  Result<std::int64_t> add(std::string_view key, std::int64_t amount) override;
  Result<StoreSwap> compare_and_set(std::string_view key, std::optional<std::string_view> expected,
                                    std::string_view desired) override;
  Result<std::int64_t> append(std::string_view key, std::string_view bytes) override;
  Result<bool> remove(std::string_view key) override;
  Result<std::vector<StoreEntry>> list(std::string_view prefix) override;
  Result<StoreChanges> watch(std::string_view prefix, std::uint64_t revision,
                             Deadline deadline) override;

  /// Like set, but the server removes the key when this connection ends, however it ends, unless
  /// somebody else has changed or removed it since.
  Status set_owned(std::string_view key, std::string_view value);

  /// From now on what get_all and watch wait for, and wait for in vain, is shown in dlaunch's hang
  /// reports; nullptr: nothing is. Before the store is shared.
  void publish_waits(std::shared_ptr<Activity> activity) { activity_ = std::move(activity); }

  /// Carries out the changes of a batch in order, with many of them under way at once, and returns
  /// each one's number as set (0), add, append and remove give it. An error is that of the first
  /// change that the store refused, by its key; the others are carried out nevertheless. Where a
  /// key or a value is too long, nothing is.
  Result<std::vector<std::int64_t>> run(const StoreBatch& batch, Deadline deadline);

  /// What the server counts: pairs of a name and a number.
  Result<std::vector<std::pair<std::string, std::string>>> stat();

  /// Ends all calls that are under way, and later ones, with an error.
  void disconnect();

  /// The numeric addresses of both ends of the connection, IPv6 in brackets, without ports.
  std::string own_host() const;
  std::string server_host() const;

  /// How long every call waits for its answer, beyond what it asks the server to wait: for those
  /// who must notice soon that the server is gone. 300 s at first. Before the store is shared.
  void limit_answers(std::chrono::nanoseconds limit) { answer_limit_ = limit; }

 private:
  using Message = store_protocol::Message;
  // A call that waits for its response; lives on the caller's stack.
  struct Call {
    bool done = false;
    Message response;
  };

  TcpStore(int socket, std::string address, std::string prefix);
  template <typename Wait>
  auto wait_visibly(std::size_t keys, Deadline deadline, const Wait& wait)
      -> decltype(wait(deadline));
  Result<std::vector<std::string>> get_all_once(const std::vector<std::string>& keys,
                                                Deadline deadline);
  Result<StoreChanges> watch_once(std::string_view prefix, std::uint64_t revision,
                                  Deadline deadline);
  Status status_of(Message& response) const;
  Status put_prefix(Message& request) const;
  Status strip_prefix(std::string& key) const;
  Result<Message> call(Message request, Deadline deadline);
  Status run_calls(std::span<Message> requests, std::span<Call> calls, Deadline deadline);
  Status register_calls(std::span<Message> requests, std::span<Call> calls);
  Status send_frames(std::unique_lock<std::mutex>& lock, std::span<const Message> requests,
                     Deadline deadline);
  Status read_responses(std::unique_lock<std::mutex>& lock, Deadline deadline);
  Status deliver(Message response);

  const int socket_;
  const std::string address_;
  const std::string prefix_;
  std::chrono::nanoseconds answer_limit_ = kDefaultTimeout;
  std::shared_ptr<Activity> activity_;

  std::mutex mutex_;  // guards what follows, except that inbox_ belongs to the reading thread
  std::condition_variable changed_;
  bool sending_ = false;  // the frames of one call at a time
  bool reading_ = false;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Call*> calls_;
  Status failure_;
  store_protocol::FrameBuffer inbox_;
};

}  // namespace dlaunch
