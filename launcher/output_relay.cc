#include "launcher/output_relay.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr std::size_t kLongestLine = 16 << 10;  // a longer one is relayed in pieces
constexpr std::size_t kKeptLines = 20;
constexpr std::size_t kKeptBytesPerLine = 1000;
constexpr std::size_t kMostPending = 1 << 20;
// A pipe that polls writable has room for this many bytes (PIPE_BUF), so a blocking write returns.
constexpr std::size_t kWriteBytes = 4096;

// How much to write next: whole lines if any fit, so that lines which others write to the same
// place fall between ours and not into them.
std::size_t next_write(std::string_view pending) {
  if (pending.size() <= kWriteBytes) return pending.size();
  const auto newline = pending.substr(0, kWriteBytes).rfind('\n');
  return newline == std::string_view::npos ? kWriteBytes : newline + 1;
}

bool writable_now(int descriptor, int timeout_ms) {
  pollfd waiting{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return poll(&waiting, 1, timeout_ms) > 0;
}

}  // namespace

OutputRelay::~OutputRelay() {
  for (const auto& [rank, source] : sources_) {
    if (source.pipe >= 0) loop_.remove(source.pipe);
  }
  if (awaiting_output_) loop_.remove(output_);
}

void OutputRelay::add(int rank, int pipe) {
  sources_[rank] = {.pipe = pipe, .partial = {}, .last = {}};
  if (!paused_) loop_.add(pipe, EPOLLIN, [this, rank] { read_available(rank); });
}

void OutputRelay::read_available(int rank) {
  Source& source = sources_[rank];
  if (!read_once(rank, source) && source.pipe >= 0) {
    loop_.remove(std::exchange(source.pipe, -1));  // end of file
  }
  write_pending();
  if (pending_.size() < kMostPending || paused_) return;
  paused_ = true;
  for (const auto& [other, each] : sources_) {
    if (each.pipe >= 0) loop_.remove(each.pipe);
  }
}

void OutputRelay::resume_reading() {
  paused_ = false;
  for (const auto& [rank, source] : sources_) {
    if (source.pipe < 0) continue;
    loop_.add(source.pipe, EPOLLIN, [this, rank = rank] { read_available(rank); });
  }
}

// Reads one piece; false at the end of the file.
bool OutputRelay::read_once(int rank, Source& source) {
  std::array<char, 64 << 10> buffer;
  const ssize_t count = read(source.pipe, buffer.data(), buffer.size());
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  std::string_view rest(buffer.data(), static_cast<std::size_t>(count));
  while (!rest.empty()) {
    const auto newline = rest.find('\n');
    const auto room = kLongestLine - source.partial.size();
    const auto length = std::min({newline, room, rest.size()});
    source.partial += rest.substr(0, length);
    rest.remove_prefix(length);
    if (length == newline) rest.remove_prefix(1);
    if (length == newline || source.partial.size() == kLongestLine) {
      emit(rank, source, std::exchange(source.partial, {}));
    }
  }
  return count > 0;
}

void OutputRelay::drain(int rank) {
  Source& source = sources_[rank];
  pollfd waiting{.fd = source.pipe, .events = POLLIN, .revents = 0};
  // Bounded: a surviving child of the rank may write without end. A pipe of -1 polls as silent.
  for (int i = 0; i < 64 && poll(&waiting, 1, 0) > 0; ++i) {
    if (!read_once(rank, source)) {
      loop_.remove(std::exchange(source.pipe, -1));
      break;
    }
  }
  if (!source.partial.empty()) emit(rank, source, std::exchange(source.partial, {}));
  write_pending();
}

void OutputRelay::release(int rank) {
  if (Source& source = sources_[rank]; source.pipe >= 0) {
    loop_.remove(std::exchange(source.pipe, -1));
  }
}

void OutputRelay::emit(int rank, Source& source, std::string_view line) {
  source.last.push_back({++lines_, std::string(line.substr(0, kKeptBytesPerLine))});
  if (source.last.size() > kKeptLines) source.last.pop_front();
  pending_ += "[rank " + std::to_string(rank) + "] ";
  pending_ += line;
  pending_ += '\n';
}

void OutputRelay::write_line(std::string_view line) {
  pending_ += line;
  pending_ += '\n';
  write_pending();
}

void OutputRelay::write_pending() {
  std::size_t written = 0;
  while (written < pending_.size() && writable_now(output_, 0)) {
    const std::string_view rest = std::string_view(pending_).substr(written);
    const ssize_t count = write(output_, rest.data(), next_write(rest));
    if (count < 0 && errno != EINTR && errno != EAGAIN) {
      written = pending_.size();  // nobody reads any more: drop it
    } else if (count > 0) {
      written += static_cast<std::size_t>(count);
    }
  }
  pending_.erase(0, written);
  if (pending_.empty() && awaiting_output_) {
    awaiting_output_ = false;
    loop_.remove(output_);
  } else if (!pending_.empty() && !awaiting_output_) {
    awaiting_output_ = loop_.add(output_, EPOLLOUT, [this] { write_pending(); });
  }
  if (paused_ && pending_.size() < kMostPending / 2) resume_reading();
}

std::vector<std::string> OutputRelay::last_lines(int rank) const {
  std::vector<std::string> lines;
  const auto found = sources_.find(rank);
  if (found == sources_.end()) return lines;
  for (const Line& line : found->second.last) lines.push_back(line.text);
  return lines;
}

bool OutputRelay::shown_last(int rank) const {
  const auto found = sources_.find(rank);
  if (found == sources_.end() || found->second.last.empty()) return false;
  return lines_ - found->second.last.front().number + 1 == found->second.last.size();
}

void OutputRelay::flush(std::chrono::milliseconds limit) {
  const auto give_up = EventLoop::Clock::now() + limit;
  while (!pending_.empty()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(give_up - EventLoop::Clock::now()).count();
    if (left <= 0 || !writable_now(output_, static_cast<int>(left))) return;
    write_pending();
  }
}

}  // namespace dlaunch
