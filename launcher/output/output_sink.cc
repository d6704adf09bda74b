#include "launcher/output/output_sink.h"

#include <algorithm>
#include <cerrno>
#include <cwchar>
#include <utility>

#include <locale.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/base/non_blocking.h"

namespace dlaunch {
namespace {

// A pipe that polls writable has room for this many bytes (PIPE_BUF): also where it could not be
// opened without blocking, a write returns unless others write at the same time.
constexpr std::size_t kWriteBytes = 4096;
constexpr std::chrono::milliseconds kRetryAfter{20};
// More than this on its way to a terminal: it is too slow for a progress bar.
constexpr std::size_t kMostBeforeUnfinished = 16 << 10;
constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr std::string_view kPlain = "\x1b[0m";
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

bool is_socket(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 && S_ISSOCK(about.st_mode);
}

std::size_t columns_of(int terminal) {
  winsize size{};
  const bool known = ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUnknownColumns;
}

}  // namespace

OutputSink::OutputSink(EventLoop& loop, int descriptor, std::function<void()> on_written)
    : loop_(loop),
      reopened_(reopen_non_blocking(descriptor)),
      descriptor_(reopened_.is_open() ? reopened_.get() : descriptor),
      terminal_(isatty(descriptor) == 1),
      socket_(is_socket(descriptor)),
      on_written_(std::move(on_written)) {}

OutputSink::~OutputSink() {
  if (waiting_) loop_.remove(descriptor_);
  if (retry_) loop_.cancel(*retry_);
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
  const std::string_view shown = fitting(unfinished_, columns_of(descriptor_) - 1);
  pending_ += shown;
  // What would have ended a colour may be cut off.
  const bool coloured = shown.find('\x1b') != std::string_view::npos;
  if (coloured && shown.size() < unfinished_.size()) pending_ += kPlain;
  drawn_ = true;
}

void OutputSink::write() {
  const std::size_t gathered = pending_.size();
  pending_.erase(0, write_some());
  wait_for_room(!pending_.empty() && !refused_);
  if (!pending_.empty() && refused_ && !retry_) {
    retry_ = loop_.call_at(EventLoop::Clock::now() + kRetryAfter, [this] {
      retry_.reset();
      write();
    });
  }
  if (pending_.size() < gathered) on_written_();
}

void OutputSink::wait_for_room(bool wanted) {
  if (wanted == waiting_) return;
  if (!wanted) loop_.remove(descriptor_);
  waiting_ = wanted && loop_.add(descriptor_, EPOLLOUT, [this] { write(); });
}

// Returns how much of what has gathered is done with.
std::size_t OutputSink::write_some() {
  std::size_t written = 0;
  refused_ = false;
  while (error_ == 0 && !refused_ && written < pending_.size() && writable_now(descriptor_)) {
    const std::string_view rest = std::string_view(pending_).substr(written);
    const ssize_t count = write_once(rest.substr(0, next_write(rest)));
    if (count > 0) {
      written += static_cast<std::size_t>(count);
    } else if (count < 0 && errno == EAGAIN) {
      refused_ = true;
    } else if (count < 0 && errno != EINTR) {
      error_ = errno;
    }
  }
  return error_ == 0 ? written : pending_.size();
}

ssize_t OutputSink::write_once(std::string_view bytes) const {
  if (socket_) return ::send(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return ::write(descriptor_, bytes.data(), bytes.size());
}

bool OutputSink::unread() const {
  return error_ == EPIPE || (terminal_ && error_ == EIO);
}

namespace {

// The length of the escape sequence with which the text begins, or 0.
std::size_t escape_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  std::size_t end = 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

// Of the character with which the text begins: its bytes, and the columns that it takes. What is
// none takes one each.
std::pair<std::size_t, std::size_t> character_size(std::string_view text) {
  wchar_t character = 0;
  std::mbstate_t state{};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the state is this one's
  const std::size_t length = std::mbrtowc(&character, text.data(), text.size(), &state);
  if (length == 0 || length > text.size()) return {1, 1};
  const int columns = ::wcwidth(character);  // -1: a control character
  return {length, columns < 0 ? 1U : static_cast<std::size_t>(columns)};
}

// Characters are those of UTF-8 while it lives, in this thread.
class Utf8Locale {
 public:
  Utf8Locale() {
    static locale_t const utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    if (utf8 != nullptr) before_ = ::uselocale(utf8);
  }
  ~Utf8Locale() {
    if (before_ != nullptr) ::uselocale(before_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t before_ = nullptr;
};

}  // namespace

std::string_view fitting(std::string_view text, std::size_t columns) {
  const Utf8Locale utf8;
  std::size_t used = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t escape = escape_length(text.substr(i)); escape > 0) {
      i += escape;
      continue;
    }
    const auto [length, taken] = character_size(text.substr(i));
    used += taken;
    if (used > columns) return text.substr(0, i);
    i += length;
  }
  return text;
}

}  // namespace dlaunch
