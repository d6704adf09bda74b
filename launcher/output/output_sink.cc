#include "launcher/output/output_sink.h"

#include <cerrno>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace dlaunch {
namespace {

// A pipe that polls writable has room for this many bytes (PIPE_BUF), so a blocking write returns.
constexpr std::size_t kWriteBytes = 4096;
// More than this on its way to a terminal: it is too slow for a progress bar.
constexpr std::size_t kMostBeforeUnfinished = 16 << 10;
constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr std::size_t kUnknownColumns = 80;

// How much to write next: whole lines if any fit, so that lines which others write to the same
// place fall between ours and not into them.
std::size_t next_write(std::string_view pending) {
  if (pending.size() <= kWriteBytes) return pending.size();
  const auto newline = pending.substr(0, kWriteBytes).rfind('\n');
  return newline == std::string_view::npos ? kWriteBytes : newline + 1;
}

bool writable_now(int descriptor) {
  pollfd waiting{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return poll(&waiting, 1, 0) > 0;
}

std::size_t columns_of(int terminal) {
  winsize size{};
  const bool known = ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUnknownColumns;
}

}  // namespace

OutputSink::OutputSink(EventLoop& loop, int descriptor, std::function<void()> on_written)
    : loop_(loop),
      descriptor_(descriptor),
      terminal_(isatty(descriptor) == 1),
      on_written_(std::move(on_written)) {}

OutputSink::~OutputSink() {
  if (waiting_) loop_.remove(descriptor_);
}

void OutputSink::add_line(std::string_view line) {
  erase_unfinished();
  pending_ += line;
  pending_ += '\n';
  ++lines_;
  draw_unfinished();
}

void OutputSink::add_bytes(std::string_view bytes) {
  erase_unfinished();
  pending_ += bytes;
  if (bytes.ends_with('\n')) draw_unfinished();
}

void OutputSink::show_unfinished(std::string_view text) {
  if (!terminal_ || text == unfinished_) return;
  erase_unfinished();
  unfinished_ = text;
  draw_unfinished();
}

void OutputSink::erase_unfinished() {
  if (std::exchange(drawn_, false)) pending_ += kEraseLine;
}

void OutputSink::draw_unfinished() {
  if (unfinished_.empty() || pending_.size() > kMostBeforeUnfinished) return;
  // The last column stays free: a terminal would go to the next line, and one is all that is
  // erased.
  pending_ += fitting(unfinished_, columns_of(descriptor_) - 1);
  drawn_ = true;
}

void OutputSink::write() {
  const std::size_t gathered = pending_.size();
  pending_.erase(0, write_some());
  if (pending_.empty() && waiting_) {
    waiting_ = false;
    loop_.remove(descriptor_);
  } else if (!pending_.empty() && !waiting_) {
    waiting_ = loop_.add(descriptor_, EPOLLOUT, [this] { write(); });
  }
  if (pending_.size() < gathered) on_written_();
}

// Returns how much of what has gathered is done with.
std::size_t OutputSink::write_some() {
  std::size_t written = 0;
  while (error_ == 0 && written < pending_.size() && writable_now(descriptor_)) {
    const std::string_view rest = std::string_view(pending_).substr(written);
    const ssize_t count = ::write(descriptor_, rest.data(), next_write(rest));
    if (count > 0) {
      written += static_cast<std::size_t>(count);
    } else if (count < 0 && errno != EINTR && errno != EAGAIN) {
      error_ = errno;
    }
  }
  return error_ == 0 ? written : pending_.size();
}

bool OutputSink::unread() const {
  return error_ == EPIPE || (terminal_ && error_ == EIO);
}

std::string_view fitting(std::string_view text, std::size_t columns) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0x1b && i + 1 < text.size() && text[i + 1] == '[') {
      i += 2;
      while (i < text.size() && (text[i] < '@' || text[i] > '~')) ++i;
    } else if ((byte & 0xC0U) != 0x80 && ++used > columns) {
      return text.substr(0, i);
    }
  }
  return text;
}

}  // namespace dlaunch
