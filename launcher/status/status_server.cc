#include "launcher/status/status_server.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr std::size_t kMostClients = 16;
// Out of descriptors, or of memory.
constexpr std::chrono::milliseconds kPauseAfterAcceptError{100};

// Sockets of jobs that were killed with SIGKILL stay behind.
void remove_dead_sockets(const std::string& folder) {
  for (const std::string& job : jobs_in(folder)) {
    std::string path = folder;
    path.append("/").append(job);
    if (connect_status(path).status().code() == StatusCode::kUnavailable) unlink(path.c_str());
  }
}

}  // namespace

StatusServer::StatusServer(EventLoop& loop, const std::string& job_id, Handler handler)
    : loop_(loop), handler_(std::move(handler)) {
  status_ = open(job_id);
  if (status_.ok()) listen();
}

Status StatusServer::open(const std::string& job_id) {
  const auto folder = status_folder(true);
  if (!folder.ok()) return folder.status();
  remove_dead_sockets(*folder);
  auto listener = listen_status(*folder, job_id);
  if (!listener.ok()) return listener.status();
  path_ = *folder + "/" + job_id;
  listener_ = *std::move(listener);
  return Status();
}

StatusServer::~StatusServer() {
  while (!clients_.empty()) drop(clients_.begin()->first);
  if (!listener_.is_open()) return;
  if (retry_) loop_.cancel(*retry_);
  loop_.remove(listener_.get());
  unlink(path_.c_str());
}

void StatusServer::listen() {
  loop_.add(listener_.get(), EPOLLIN, [this] { accept_client(); });
}

// Who waits at the listener would wake the loop again and again.
void StatusServer::pause_listening() {
  loop_.remove(listener_.get());
  retry_ = loop_.call_at(EventLoop::Clock::now() + kPauseAfterAcceptError, [this] {
    retry_.reset();
    listen();
  });
}

void StatusServer::accept_client() {
  Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool gone = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
  if (!socket.is_open() && !gone) return pause_listening();
  if (!socket.is_open() || !is_own_user(socket.get())) return;
  if (clients_.size() >= kMostClients) drop(clients_.begin()->first);
  const std::uint64_t id = next_client_++;
  loop_.add(socket.get(), EPOLLIN, [this, id] { read_request(id); });
  clients_[id].socket = std::move(socket);
}

void StatusServer::read_request(std::uint64_t id) {
  char request = 0;
  const int socket = clients_[id].socket.get();
  const ssize_t count = read(socket, &request, 1);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  loop_.remove(socket);
  if (count <= 0) return drop(id);
  handler_(static_cast<StatusRequest>(request),
           [this, id](const std::string& text) { answer(id, text); });
}

void StatusServer::answer(std::uint64_t id, const std::string& text) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;  // it has been dropped meanwhile
  found->second.unsent = text;
  loop_.add(found->second.socket.get(), EPOLLOUT, [this, id] { send_more(id); });
}

void StatusServer::send_more(std::uint64_t id) {
  Client& client = clients_[id];
  const ssize_t count =
      send(client.socket.get(), client.unsent.data(), client.unsent.size(), MSG_NOSIGNAL);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) client.unsent.erase(0, static_cast<std::size_t>(count));
  if (count < 0 || client.unsent.empty()) drop(id);
}

void StatusServer::drop(std::uint64_t id) {
  loop_.remove(clients_[id].socket.get());
  clients_.erase(id);
}

}  // namespace dlaunch
