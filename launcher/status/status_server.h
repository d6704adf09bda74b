// StatusServer: the socket at which a running job answers `dlaunch status` (status_socket.h).
// Belongs to the event loop's thread and never blocks it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/event_loop.h"
#include "launcher/status/status_socket.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

class StatusServer {
 public:
  /// Sends the whole answer; to be called at most once, while the server lives, now or later.
  using Answer = std::function<void(const std::string& text)>;
  using Handler = std::function<void(StatusRequest request, const Answer& answer)>;

  /// Listens for job `job_id`.
  StatusServer(EventLoop& loop, const std::string& job_id, Handler handler);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  /// Why the job cannot be asked: there is no place for its socket.
  const Status& status() const { return status_; }

 private:
  struct Client {
    Descriptor socket;
    std::string unsent;
  };

  Status open(const std::string& job_id);
  void listen();
  void pause_listening();
  void accept_client();
  void read_request(std::uint64_t id);
  void answer(std::uint64_t id, const std::string& text);
  void send_more(std::uint64_t id);
  void drop(std::uint64_t id);

  EventLoop& loop_;
  const Handler handler_;
  Status status_;
  std::string path_;
  Descriptor listener_;
  std::optional<EventLoop::TimerId> retry_;  // of listening, if it pauses
  std::map<std::uint64_t, Client> clients_;
  std::uint64_t next_client_ = 1;
};

}  // namespace dlaunch
