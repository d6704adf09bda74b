// Tests that fail, hang, crash or skip on purpose, for reported_failures_test.cc.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <gmock/gmock.h>

#include "tests/support/distributed_test.h"

namespace dlaunch::testing {
namespace {

using std::chrono::seconds;

const char* variable(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
}

class ThrowsOnFailure : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) throw ::testing::AssertionException(result);
  }
};

TEST(Failing, ExpectationOnOneRank) {
  run_on_ranks(4, [](Communicator& world) {
    std::cout << "hello from rank " << world.rank() << std::endl;
    EXPECT_NE(world.rank(), 2) << "two is \"too\" much";
  });
}

TEST(Failing, ExpectationBeforeTheCallOnARank) {
  EXPECT_EQ(variable("RANK"), nullptr) << "before the call";
  run_on_ranks(2, [](Communicator&) {});
}

TEST(Failing, ExpectationsOnEveryRank) {
  run_on_ranks(3, [](Communicator& world) {
    EXPECT_EQ(world.rank(), 100);
    EXPECT_EQ(world.rank(), 200);
  });
}

TEST(Failing, AssertionWhilePeersWait) {
  run_on_ranks(3, [](Communicator& world) {
    ASSERT_NE(world.rank(), 1) << "the root cause";
    const Status status = world.barrier();
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::cout << "rank " << world.rank() << " came to its end" << std::endl;
  });
}

TEST(Failing, Exception) {
  run_on_ranks(2, [](Communicator& world) {
    if (world.rank() == 1) throw std::runtime_error("thrown by rank 1");
  });
}

TEST(Failing, Crash) {
  run_on_ranks(3, [](Communicator& world) {
    if (world.rank() == 1) {
      std::fputs("last words\n", stderr);
      std::abort();
    }
    (void)world.barrier();
  });
}

TEST(Failing, ExitCode) {
  run_on_ranks(2, [](Communicator& world) {
    if (world.rank() == 1) std::_Exit(7);
  });
}

TEST(Failing, EarlyExitWithSuccess) {
  run_on_ranks(2, [](Communicator& world) {
    if (world.rank() == 1) std::_Exit(0);
  });
}

TEST(Failing, Hang) {
  const auto body = [](Communicator& world) {
    while (world.rank() % 2 == 1) ::pause();
  };
  run_on_ranks(4, body, {.deadline = seconds(10)});
}

TEST(Failing, HangBeforeTheBody) {
  const char* rank = variable("RANK");
  if (rank != nullptr && std::string_view(rank) == "0") ::pause();
  run_on_ranks(2, [](Communicator&) {}, {.deadline = seconds(2)});
}

// Of what leaves a file behind unless it is destroyed.
class Mark {
 public:
  explicit Mark(std::string name) : path_(std::string(variable("MARKS")) + "/" + name) {
    std::ofstream(path_ + "-begun." + std::to_string(::getpid()));
  }
  ~Mark() { std::ofstream(path_ + "-ended." + std::to_string(::getpid())); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

 private:
  std::string path_;
};

class Torn : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { of_suite = new Mark("suite"); }
  static void TearDownTestSuite() {
    EXPECT_EQ(variable("FAIL_IN_SUITE"), nullptr) << "of the suite";
    delete of_suite;
  }
  void TearDown() override {
    const Mark mark("tear-down");
    EXPECT_EQ(variable("FAIL_IN_TEAR_DOWN"), nullptr) << "of the fixture";
  }

  static inline Mark* of_suite = nullptr;
  const Mark of_fixture_{"fixture"};
  ::testing::MockFunction<void(int)> mock_;
};

TEST_F(Torn, Down) {
  const Mark local("local");
  run_on_ranks(2, [&](Communicator& world) {
    EXPECT_CALL(mock_, Call(world.rank()));
    if (variable("FAIL_IN_MOCK") == nullptr) mock_.Call(world.rank());
  });
}

class CalledFromSetUp : public ::testing::Test {
 protected:
  void SetUp() override {
    run_on_ranks(2, [](Communicator&) {});
  }
};

TEST_F(CalledFromSetUp, RunsTheRestInTheParentOnly) {
  EXPECT_EQ(variable("RANK"), nullptr);
}

template <typename T>
class Typed : public ::testing::Test {};

struct OddNames {
  template <typename T>
  static std::string GetName(int) {  // NOLINT(readability-identifier-naming): GoogleTest's
    return std::is_same_v<T, int> ? "std::int32_t" : "low-precision";
  }
};
using BothTypes = ::testing::Types<int, float>;
TYPED_TEST_SUITE(Typed, BothTypes, OddNames);

TYPED_TEST(Typed, Fails) {
  run_on_ranks(2, [](Communicator& world) { EXPECT_EQ(world.rank(), 0) << sizeof(TypeParam); });
}

TEST(Failing, AssertionThatTheBodySwallows) {
  if (variable("RANK") != nullptr) {
    ::testing::UnitTest::GetInstance()->listeners().Append(new ThrowsOnFailure);
  }
  run_on_ranks(2, [](Communicator& world) {
    try {
      EXPECT_NE(world.rank(), 1) << "swallowed";
    } catch (const std::exception&) {
    }
    EXPECT_NE(world.rank(), 0) << "not swallowed";
  });
}

TEST(Failing, ExitCodeAtTheEnd) {
  run_on_ranks(2, [](Communicator& world) {
    if (world.rank() == 1) std::atexit([] { std::_Exit(7); });
  });
}

TEST(Failing, ExitCodeThatSomeoneElseTakes) {
  std::signal(SIGCHLD, SIG_IGN);
  run_on_ranks(2, [](Communicator&) { std::_Exit(7); });
}

TEST(Failing, HangAtTheEnd) {
  run_on_ranks(2,
               [](Communicator& world) {
                 if (world.rank() == 1) std::atexit([] { ::pause(); });
               },
               {.deadline = seconds(6)});
}

// Only of the first attempt.
TEST(Failing, CrashOfTheFirstAttempt) {
  run_on_ranks(2, [](Communicator& world) {
    const char* attempt = variable("TORCHELASTIC_RESTART_COUNT");
    if (world.rank() == 1 && (attempt == nullptr || std::string_view(attempt) == "0")) std::abort();
  });
}

TEST(Failing, DeathTestOfTheWrongStyle) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  run_on_ranks(2,
               [](Communicator&) { EXPECT_EXIT(std::_Exit(3), ::testing::ExitedWithCode(3), ""); });
}

TEST(Passing, DeathTests) {
  run_on_ranks(2,
               [](Communicator&) { EXPECT_EXIT(std::_Exit(3), ::testing::ExitedWithCode(3), ""); });
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(4), ::testing::ExitedWithCode(4), "");
}

// A test program that a body starts is one like any other.
TEST(Passing, TestProgramInABody) {
  run_on_ranks(2, [](Communicator& world) {
    if (world.rank() != 1) return;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe");
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the only thread that starts any
    EXPECT_EQ(std::system((program + " --gtest_filter=Passing.Talkative").c_str()), 0);
  });
}

TEST(Passing, AGreatDealOfOutput) {
  run_on_ranks(1, [](Communicator&) {
    const std::string line(999, '.');
    for (int i = 0; i < 40'000; ++i) std::cout << line << '\n';
    EXPECT_EQ(variable("FAIL"), nullptr);
  });
}

TEST(Failing, CallWithinABody) {
  run_on_ranks(2, [](Communicator&) { run_on_ranks(2, [](Communicator&) {}); });
}

TEST(Failing, NoWorkers) {
  run_on_ranks(0, [](Communicator&) {});
}

TEST(Failing, SecondCall) {
  run_on_ranks(2, [](Communicator&) { std::cout << "first job" << std::endl; });
  run_on_ranks(2, [](Communicator& world) {
    std::cout << "second job" << std::endl;
    EXPECT_NE(world.rank(), 0);
  });
}

TEST(Passing, Talkative) {
  run_on_ranks(2, [](Communicator& world) {
    std::cout << "rank " << world.rank() << " says [  FAILED  ] on stdout" << std::endl;
    std::cerr << "rank " << world.rank() << " says [  FAILED  ] on stderr" << std::endl;
  });
}

TEST(Passing, SkipOnEveryRank) {
  run_on_ranks(3, [](Communicator&) { GTEST_SKIP() << "no such device"; });
}

TEST(Passing, SkipOnOneRank) {
  run_on_ranks(3, [](Communicator& world) {
    if (world.rank() == 1) GTEST_SKIP() << "nothing to do";
  });
}

}  // namespace
}  // namespace dlaunch::testing
