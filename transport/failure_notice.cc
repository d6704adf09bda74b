#include "transport/failure_notice.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace dlaunch {
namespace {

constexpr std::string_view kReportedBy = " (reported by rank ";
constexpr std::string_view kBetween = ": ";  // the parts of a Status's text

// True of what a rank tells that has heard of it elsewhere: in another lane, of another rank.
bool says_who_reported(std::string_view text) {
  const std::size_t at = text.rfind(kReportedBy);
  if (at == std::string_view::npos || !text.ends_with(')')) return false;
  text.remove_prefix(at + kReportedBy.size());
  text.remove_suffix(1);
  return std::ranges::all_of(text, [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

// The error with the contexts of `text`, "all_reduce #2 sum f32[1000] ring: step 0", around it,
// each by itself: a rank that is in the same operation finds its name there (Status::within_once).
Status within_each(Status inner, std::string_view text) {
  for (std::size_t at = text.rfind(kBetween); at != text.npos; at = text.rfind(kBetween)) {
    inner = inner.within(std::string(text.substr(at + kBetween.size())));
    text = text.substr(0, at);
  }
  return inner.within(std::string(text));
}

}  // namespace

FailureNotice FailureNotice::from(const Status& why, int reporter) {
  return {.code = why.code(),
          .about = why.peer().value_or(-1),
          .reporter = reporter,
          .text = why.to_string()};
}

Result<FailureNotice> FailureNotice::from_peer(std::uint32_t code, int about, int reporter,
                                               std::string_view text, int world_size) {
  if (code == 0 || code > static_cast<std::uint32_t>(StatusCode::kIo)) {
    return Status(StatusCode::kProtocol, "malformed notice: the code " + std::to_string(code));
  }
  if (about < -1 || about >= world_size || reporter < 0 || reporter >= world_size) {
    return Status(StatusCode::kProtocol, "malformed notice: it names ranks outside the world");
  }
  FailureNotice notice{
      .code = static_cast<StatusCode>(code), .about = about, .reporter = reporter, .text = {}};
  for (const char letter : text.substr(0, kMaxNoticeText)) {
    const auto c = static_cast<unsigned char>(letter);
    notice.text.push_back(c < 0x20 || c == 0x7f ? ' ' : letter);
  }
  return notice;
}

Status FailureNotice::to_status() const {
  std::string told = text;
  if (!says_who_reported(text)) {
    told += std::string(kReportedBy) + std::to_string(reporter) + ")";
  }
  if (about < 0) {
    const std::size_t last = told.rfind(kBetween);
    if (last == std::string::npos) return Status(code, told);
    return within_each(Status(code, told.substr(last + kBetween.size())), told.substr(0, last));
  }
  // about_peer() writes "peer N: " itself, so the text is cut where it says the same.
  const std::string name = "peer " + std::to_string(about) + ": ";
  const std::size_t at = told.find(name);
  if (at == std::string::npos) return Status::about_peer(code, about, told);
  Status inner = Status::about_peer(code, about, told.substr(at + name.size()));
  if (at < kBetween.size()) return inner;
  return within_each(std::move(inner), std::string_view(told).substr(0, at - kBetween.size()));
}

}  // namespace dlaunch
