// TcpStore: a rank's client of the rendezvous store that dlaunch hosts.
//
// Any thread may call it; calls of several threads share one connection, and a get_all that waits
// does not hold up the others: the thread that waits longest reads for all. A connection that broke
// stays broken: every later call returns why.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/rendezvous/store.h"
#include "runtime/rendezvous/store_protocol.h"

namespace dlaunch {

class TcpStore final : public Store {
 public:
  /// Connects to "host:port" and proves the token (raw bytes), both ways.
  ///   kUnavailable      nobody listens there, or the host has no address
  ///   kUnauthenticated  one side does not know the token
  ///   kProtocol         that is no store, or one of another version
  ///   kTimeout          the deadline passed
  static Result<std::unique_ptr<TcpStore>> connect(std::string_view address, std::string_view token,
                                                   Deadline deadline);
  ~TcpStore() override;
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;

  Status set(std::string_view key, std::string_view value) override;
  Result<std::vector<std::string>> get_all(const std::vector<std::string>& keys,
                                           Deadline deadline) override;
  Result<std::int64_t> add(std::string_view key, std::int64_t amount) override;
  Result<bool> remove(std::string_view key) override;

 private:
  using Message = store_protocol::Message;
  // A call that waits for its response; lives on the caller's stack.
  struct Call {
    bool done = false;
    Message response;
  };

  TcpStore(int socket, std::string address);
  Result<Message> call(Message request, Deadline deadline);
  Status send_frame(const Message& request, Deadline deadline);
  Status read_responses(std::unique_lock<std::mutex>& lock, Deadline deadline);
  Status deliver(const Message& response);

  const int socket_;
  const std::string address_;

  std::mutex send_mutex_;  // one frame at a time; never taken while mutex_ is held
  std::mutex mutex_;       // guards what follows, except that inbox_ belongs to the reading thread
  std::condition_variable changed_;
  bool reading_ = false;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Call*> calls_;
  Status failure_;
  store_protocol::FrameBuffer inbox_;
};

}  // namespace dlaunch
