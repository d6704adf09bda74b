#include "runtime/base/status.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

TEST(Status, IsOkByDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.peer(), std::nullopt);
  EXPECT_EQ(status.to_string(), "ok");
}

TEST(Status, IsPrintedAsItsTextAndItsCodeAsAWord) {
  std::ostringstream out;
  out << Status(StatusCode::kTimeout, "too late") << '|' << Status() << '|'
      << StatusCode::kPeerLost;
  EXPECT_EQ(out.str(), "too late|ok|peer lost");
}

TEST(Status, NamesThePeerItIsAbout) {
  const auto status = Status::about_peer(StatusCode::kPeerLost, 2, "connection reset");
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_EQ(status.peer(), 2);
  EXPECT_EQ(status.to_string(), "peer 2: connection reset");
}

TEST(Status, TellsTheWholeChainAndKeepsCodeAndPeerOfTheCause) {
  const auto status = Status::about_peer(StatusCode::kPeerLost, 2, "connection reset")
                          .within("step 3")
                          .within("all_reduce #12 f32[1000]");
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_EQ(status.peer(), 2);
  EXPECT_EQ(status.to_string(), "all_reduce #12 f32[1000]: step 3: peer 2: connection reset");
}

TEST(Status, StaysSuccessWithinAContext) {
  EXPECT_TRUE(Status().within("all_reduce #12").ok());
}

TEST(Status, SaysAContextOnce) {
  const auto cause = Status::about_peer(StatusCode::kPeerLost, 2, "connection reset");
  const auto named = cause.within("barrier #3: step 1");
  EXPECT_EQ(cause.within_once("barrier #3").to_string(), "barrier #3: peer 2: connection reset");
  for (const Status& again :
       {named.within_once("barrier #3"), named.within("step 0").within_once("barrier #3")}) {
    EXPECT_EQ(again.to_string(), named.to_string());
    EXPECT_EQ(again.code(), StatusCode::kPeerLost);
    EXPECT_EQ(again.peer(), 2);
  }
  // Another operation, whose name only begins with the same letters.
  EXPECT_EQ(cause.within("barrier #30").within_once("barrier #3").to_string(),
            "barrier #3: barrier #30: peer 2: connection reset");
  EXPECT_TRUE(Status().within_once("barrier #3").ok());
}

TEST(Status, NamesAFailedSystemCall) {
  const auto status = Status::from_errno("connect", ECONNREFUSED);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.to_string(), "connect: Connection refused");
  EXPECT_EQ(Status::from_errno("eventfd", EMFILE).to_string(),
            "eventfd: Too many open files: raise `ulimit -n`");
}

TEST(Status, GivesEveryCodeANameOfItsOwn) {
  std::vector<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(StatusCode::kIo); ++code) {
    const auto name = to_string(static_cast<StatusCode>(code));
    EXPECT_NE(name, "unknown");
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << name;
    names.push_back(name);
  }
}

TEST(Status, BecomesAnExceptionWithItsText) {
  EXPECT_NO_THROW(throw_if_error(Status()));
  const Status failure(StatusCode::kTimeout, "nobody came");
  try {
    throw_if_error(failure.within("connecting"));
    FAIL() << "nothing was thrown";
  } catch (const StatusError& error) {
    EXPECT_STREQ(error.what(), "connecting: nobody came");
    EXPECT_EQ(error.status().code(), StatusCode::kTimeout);
  }
}

Result<std::unique_ptr<int>> half_of(int number) {
  if (number % 2 != 0) return Status(StatusCode::kInvalidArgument, "odd");
  return std::make_unique<int>(number / 2);
}

TEST(Result, HoldsAValueOrAnError) {
  auto good = half_of(10);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(**good, 5);

  const auto bad = half_of(11);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().to_string(), "odd");
}

TEST(Result, MovesItsValueOut) {
  const std::unique_ptr<int> value = half_of(10).value_or_throw();
  EXPECT_EQ(*value, 5);
  EXPECT_THROW(half_of(11).value_or_throw(), StatusError);
}

Status first_error(const Status& first, const Status& second, int& reached) {
  DLAUNCH_RETURN_IF_ERROR(first);
  reached = 1;
  DLAUNCH_RETURN_IF_ERROR(second);
  reached = 2;
  return Status();
}

TEST(ReturnIfError, LeavesTheFunctionAtTheFirstError) {
  const Status failure(StatusCode::kIo, "disk full");
  int reached = 0;
  EXPECT_TRUE(first_error(Status(), Status(), reached).ok());
  EXPECT_EQ(reached, 2);
  reached = 0;
  EXPECT_EQ(first_error(Status(), failure, reached).to_string(), "disk full");
  EXPECT_EQ(reached, 1);
}

}  // namespace
}  // namespace dlaunch
